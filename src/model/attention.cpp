#include "model/attention.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "model/description.h"

namespace klotski {

std::vector<RowPart> GroupedHeads::queries() const {
  if (!output_gate) return {{"queries", query_width()}};
  return {{"queries", query_width()}, {"gates", query_width()}};
}

// Computed in float32: where logarithms divide distances into buckets, rounding decides.
int64_t RelativeBias::bucket(int64_t distance) const {
  const int64_t own = both_ways ? buckets / 2 : buckets;
  const int64_t first = both_ways && distance > 0 ? own : 0;
  const int64_t far = both_ways ? std::abs(distance) : std::max<int64_t>(-distance, 0);
  const int64_t exact = own / 2;
  if (far < exact) return first + far;
  const auto steps = static_cast<float>(own - exact);
  const float share =
      std::log(static_cast<float>(far) / static_cast<float>(exact)) /
      static_cast<float>(std::log(static_cast<double>(most_distance) / static_cast<double>(exact)));
  return first + std::min(exact + static_cast<int64_t>(share * steps), own - 1);
}

std::string GroupedHeads::shape() const {
  std::string text = fmt::format("attention {} {} {} window {} bias {} {} sinks {} clip {} norm {}",
                                 query_heads, kv_heads, head_dim, window, qkv_bias, output_bias,
                                 sinks, clip > 0.0f, static_cast<int>(norm));
  if (chunk > 0) text += fmt::format(" chunk {}", chunk);
  if (!rotated) text += " not rotated";
  if (tempered) text += " tempered";
  if (output_gate) text += " gated";
  if (sees_all) text += " sees all";
  if (crosses) text += " crosses";
  if (relative_bias) text += fmt::format(" relative {}", relative_bias->most_distance);
  if (value_dim.value_or(head_dim) != head_dim) text += fmt::format(" values {}", *value_dim);
  return text;
}

// Each kept head of keys and values serves as many query heads as before.
bool GroupedHeads::halve() {
  if (kv_heads % 2 != 0 || query_heads % 2 != 0) return false;
  kv_heads /= 2;
  query_heads /= 2;
  return true;
}

int64_t LatentAttention::temporary_width() const {
  return std::max(query_heads * query_dim() + query_rank, projected_width());
}

int64_t LatentAttention::widest_projected() const {
  return std::max({projected_width(), query_rank, latent_rank});
}

std::string LatentAttention::shape() const {
  return fmt::format("latent attention {} of {} + {} to {} ranks {} {} bias {} {}{}", query_heads,
                     plain_dims, rotated_dims, value_dim, query_rank, latent_rank, input_bias,
                     output_bias, apart ? " apart" : "");
}

bool LatentAttention::halve() {
  if (query_heads % 2 != 0) return false;
  query_heads /= 2;
  return true;
}

std::vector<RowPart> GatedDeltaNet::queries() const {
  return {{"queries, keys and values", mixed_width()},
          {"gates", value_width()},
          {"rates", rate_rows()}};
}

CacheLayout GatedDeltaNet::cache() const {
  return {{}, static_cast<uint64_t>(state_numbers()) * sizeof(float)};
}

std::string GatedDeltaNet::shape() const {
  return fmt::format("gated delta net {} of {} for {} of {} taps {}", key_heads, key_dim,
                     value_heads, value_dim, taps);
}

// Each kept head of keys serves as many value heads as before.
bool GatedDeltaNet::halve() {
  if (key_heads % 2 != 0 || value_heads % 2 != 0) return false;
  key_heads /= 2;
  value_heads /= 2;
  return true;
}

KvPages keys_and_values(const LayerCache& cache) {
  return {.keys = cache.parts[0],
          .values = cache.parts[1],
          .type = cache.type,
          .page_tokens = cache.page_tokens,
          .kept_prefix = cache.kept_prefix,
          .kept_window = cache.kept_window};
}

KvPages keys_with_values(const LayerCache& cache) {
  return {.keys = cache.parts[0],
          .values = {},
          .type = cache.type,
          .page_tokens = cache.page_tokens,
          .kept_prefix = cache.kept_prefix,
          .kept_window = cache.kept_window};
}

CacheLayout Attention::cache() const {
  return std::visit([](const auto& one) { return one.cache(); }, kind);
}

std::vector<RowPart> Attention::queries() const {
  return std::visit([](const auto& one) { return one.queries(); }, kind);
}

std::vector<RowPart> Attention::inputs() const {
  std::vector<RowPart> parts = queries();
  const CacheLayout kept = cache();
  parts.insert(parts.end(), kept.parts.begin(), kept.parts.end());
  return parts;
}

int64_t Attention::input_width() const {
  return std::visit([](const auto& one) { return one.input_width(); }, kind);
}

int64_t Attention::output_width() const {
  return std::visit([](const auto& one) { return one.output_width(); }, kind);
}

int64_t Attention::widest_projected() const {
  return std::visit([](const auto& one) { return one.widest_projected(); }, kind);
}

int64_t Attention::projected_width() const {
  return std::visit([](const auto& one) { return one.projected_width(); }, kind);
}

int64_t Attention::temporary_width() const {
  return std::visit([](const auto& one) { return one.temporary_width(); }, kind);
}

int64_t Attention::query_head_width() const {
  return std::visit([](const auto& one) { return one.query_head_width(); }, kind);
}

HeadCounts Attention::heads() const {
  return std::visit([](const auto& one) { return one.heads(); }, kind);
}

std::string Attention::shape() const {
  return std::visit([](const auto& one) { return one.shape(); }, kind);
}

bool Attention::halve() {
  return std::visit([](auto& one) { return one.halve(); }, kind);
}

CacheLayouts::CacheLayouts(const ModelDescription& model) {
  for (const Layer& layer : model.layers) layers_.push_back(layer.attention.cache());
}

}  // namespace klotski
