#include "synth/tensor_fill.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <string>

#include "base/error.h"
#include "base/noise.h"
#include "tensor/half.h"

namespace klotski {

namespace {

// The common part of every embedding row, and the part of its own, which make root mean square 1.
constexpr double kCommon = 0.3;
const double kOwn = std::sqrt(1.0 - kCommon * kCommon);

// Size of the sum that all layers add to the residual stream, for an embedding of size 1.
constexpr double kAdded = 0.5;
constexpr double kLogits = 3.0;  // standard deviation of the output
constexpr double kBias = 0.02;

constexpr size_t kBlockElements = 1 << 12;  // made at a time: floats that stay in a core's cache

bool is_norm(Role role) {
  return role == Role::final_norm || role == Role::attention_norm ||
         role == Role::feed_forward_norm || role == Role::shared_norm || role == Role::query_norm ||
         role == Role::key_norm || role == Role::query_down_norm || role == Role::latent_norm ||
         role == Role::delta_norm || role == Role::encoder_norm || role == Role::cross_norm;
}

bool adds_to_stream(Role role) {
  return role == Role::attention_output || role == Role::delta_output ||
         role == Role::cross_output || role == Role::shared_down || role == Role::expert_down ||
         role == Role::dense_down;
}

bool knows_common(Role role) {
  return role == Role::embedding || role == Role::router || role == Role::output;
}

// noise() from an index on: whole numbers of at most 18 bits, exact as floats. Two loops, since a
// compiler has vectors for the second one only.
void fill_with_noise(uint64_t key, uint64_t first, std::span<float> out) {
  std::array<uint64_t, 512> bits;
  for (size_t at = 0; at < out.size(); at += bits.size()) {
    const size_t count = std::min(bits.size(), out.size() - at);
    for (size_t i = 0; i < count; ++i) bits[i] = noise_bits(key, first + at + i);
    for (size_t i = 0; i < count; ++i) out[at + i] = static_cast<float>(noise_in(bits[i]));
  }
}

template <typename Element, typename Convert>
void store_as(std::span<const float> values, std::span<std::byte> out, Convert convert) {
  for (size_t i = 0; i < values.size(); ++i) {
    const Element element = convert(values[i]);
    std::memcpy(out.data() + i * sizeof(Element), &element, sizeof(Element));
  }
}

void store(std::span<const float> values, DType dtype, std::span<std::byte> out) {
  switch (dtype) {
    case DType::F32:
      return store_as<float>(values, out, [](float value) { return value; });
    case DType::F16:
      return store_as<uint16_t>(values, out, float_to_f16);
    case DType::BF16:
      return store_as<uint16_t>(values, out, float_to_bf16);
    default:
      fail(ErrorKind::internal, "random weights are F32, F16 or BF16, not {}", dtype_name(dtype));
  }
}

}  // namespace

TensorFill::TensorFill(const ModelDescription& model, uint64_t seed, double share)
    : model_(model), seed_(seed) {
  const uint64_t key = noise_key(seed, "common");
  for (int64_t i = 0; i < model.hidden; ++i) {
    common_.push_back(noise_bits(key, static_cast<uint64_t>(i)) % 2 == 0 ? 1.0f : -1.0f);
  }
  for (const Layer& layer : model.layers) {
    const FeedForward& part = layer.feed_forward;
    const std::pair<int64_t, int64_t> kind(part.experts, part.router.top_k);
    if (part.routed && popularity_.count(kind) == 0) {
      popularity_.emplace(kind, popularity_for_share(kind.first, kind.second, share));
    }
  }
}

uint64_t TensorFill::key(const TensorSpec& spec) const { return noise_key(seed_, spec.name); }

double TensorFill::deviation(const TensorSpec& spec) const {
  // Tied embeddings are also the output projection, so the whole stream is smaller.
  const auto hidden = static_cast<double>(model_.hidden);
  const double stream = model_.tied_embeddings ? kLogits / std::sqrt(hidden) : 1.0;
  if (spec.role == Role::embedding) return stream * kOwn;
  if (spec.shape.size() < 2) return kBias;
  const double kept = 1.0 / std::sqrt(static_cast<double>(spec.shape.back()));
  if (spec.role == Role::output) return kLogits * kept / kOwn;
  if (spec.role == Role::router) return kept / kOwn;  // logits of deviation 1, less the bias
  if (!adds_to_stream(spec.role)) return kept;
  return stream * kept * kAdded / std::sqrt(static_cast<double>(model_.layer_count()));
}

// Size of an expert's router row along the common vector: times a normed row it gives the bias of
// the expert's logit.
double TensorFill::router_bias(LayerId layer, uint64_t expert) const {
  const FeedForward& part = model_.layer(layer).feed_forward;
  const Popularity& popularity = popularity_.at({part.experts, part.router.top_k});
  const uint64_t key = noise_key(seed_, "popular " + std::to_string(layer.value));
  return popularity.bias(ranks_of_experts(key, part.experts)[expert]) /
         (kCommon * static_cast<double>(model_.hidden));
}

// Makes noise without its part along the common vector, but for the part that makes an expert
// popular.
void TensorFill::make_row_off_common(const Recipe& recipe, uint64_t first,
                                     std::span<float> row) const {
  fill_with_noise(recipe.key, first, row);
  int64_t along = 0;
  for (size_t i = 0; i < row.size(); ++i) {
    along += static_cast<int64_t>(row[i] * common_[i]);
  }
  const double mean = static_cast<double>(along) / static_cast<double>(row.size());
  const double scale = recipe.deviation / noise_deviation();
  for (size_t i = 0; i < row.size(); ++i) {
    row[i] = static_cast<float>((row[i] - mean * common_[i]) * scale);
  }
  if (recipe.role != Role::router) return;
  const auto bias = static_cast<float>(router_bias(recipe.layer, first / row.size()));
  for (size_t i = 0; i < row.size(); ++i) row[i] += bias * common_[i];
}

void TensorFill::make(const Recipe& recipe, uint64_t first, std::span<float> values) const {
  if (is_norm(recipe.role) || recipe.role == Role::selection_bias ||
      recipe.role == Role::router_bias) {
    // Norms of rows and heads give rows of size 1, whatever number is added to their weights.
    const float one = recipe.role == Role::delta_norm ? 1.0f : 1.0f - model_.norm_offset;
    std::fill(values.begin(), values.end(), is_norm(recipe.role) ? one : 0.0f);
    return;
  }
  if (recipe.role == Role::router || recipe.role == Role::output) {
    return make_row_off_common(recipe, first, values);
  }
  fill_with_noise(recipe.key, first, values);
  const auto scale = static_cast<float>(recipe.deviation / noise_deviation());
  for (float& value : values) value *= scale;
  if (recipe.role != Role::embedding) return;
  const auto common = static_cast<float>(recipe.deviation / kOwn * kCommon);
  for (size_t i = 0; i < values.size(); ++i) values[i] += common * common_[i];
}

void TensorFill::fill(const TensorSpec& spec, LayerId layer, Elements elements) const {
  auto& [dtype, first, out] = elements;
  const Recipe recipe{
      .role = spec.role, .layer = layer, .key = key(spec), .deviation = deviation(spec)};
  const auto size = static_cast<size_t>(bytes_per_element(dtype));
  const bool by_row = knows_common(spec.role);
  std::vector<float> block(by_row ? common_.size() : std::min(kBlockElements, out.size() / size));
  while (!out.empty()) {
    const size_t skipped = by_row ? first % block.size() : 0;
    const size_t count = std::min(out.size() / size, block.size() - skipped);
    const std::span<float> made = std::span(block).first(by_row ? block.size() : count);
    make(recipe, first - skipped, made);
    store(made.subspan(skipped, count), dtype, out.first(count * size));
    first += count;
    out = out.subspan(count * size);
  }
}

}  // namespace klotski
