#include "synth/tensor_fill.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <string>

#include "base/error.h"
#include "base/noise.h"
#include "tensor/half.h"

namespace klotski {

namespace {

// The common part of every embedding row, and what is left of a row of root mean square 1.
constexpr double kCommon = 0.3;
const double kOwn = std::sqrt(1.0 - kCommon * kCommon);

// What all layers together add to the residual stream, beside an embedding of size 1.
constexpr double kAdded = 0.5;
constexpr double kLogits = 3.0;  // standard deviation of the output
constexpr double kBias = 0.02;

constexpr size_t kBlockElements = 1 << 14;  // made at a time: floats that stay in a core's cache

bool is_norm(Role role) {
  return role == Role::final_norm || role == Role::attention_norm ||
         role == Role::feed_forward_norm || role == Role::query_norm || role == Role::key_norm;
}

bool adds_to_stream(Role role) {
  return role == Role::attention_output || role == Role::shared_down || role == Role::expert_down ||
         role == Role::dense_down;
}

template <typename Element, typename Convert>
void store_as(std::span<std::byte> out, std::span<const float> values, Convert convert) {
  for (size_t i = 0; i < values.size(); ++i) {
    const Element element = convert(values[i]);
    std::memcpy(out.data() + i * sizeof(Element), &element, sizeof(Element));
  }
}

}  // namespace

TensorFill::TensorFill(const ModelDescription& model, uint64_t seed, double share, DType dtype)
    : model_(model), seed_(seed), dtype_(dtype) {
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

// Of the independent part of a tensor's values.
double TensorFill::deviation(const TensorSpec& spec) const {
  // With tied embeddings the table is also the output projection, so the whole stream is smaller.
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

// Noise of the given scale without its part along the common vector.
std::vector<float> TensorFill::row_off_common(uint64_t key, uint64_t row, double scale) const {
  const size_t hidden = common_.size();
  std::vector<int32_t> own(hidden);
  int64_t along = 0;
  for (size_t i = 0; i < hidden; ++i) {
    own[i] = noise(key, row * hidden + i);
    along += common_[i] > 0 ? own[i] : -own[i];
  }
  const double mean = static_cast<double>(along) / static_cast<double>(hidden);
  std::vector<float> values(hidden);
  for (size_t i = 0; i < hidden; ++i) {
    values[i] = static_cast<float>((own[i] - mean * common_[i]) * scale);
  }
  return values;
}

// Along the common vector: times a normed row it gives the bias of the expert's logit.
double TensorFill::router_bias(LayerId layer, uint64_t expert) const {
  const FeedForward& part = model_.layer(layer).feed_forward;
  const Popularity& popularity = popularity_.at({part.experts, part.router.top_k});
  const uint64_t key = noise_key(seed_, "popular " + std::to_string(layer.value));
  return popularity.bias(ranks_of_experts(key, part.experts)[expert]) /
         (kCommon * static_cast<double>(model_.hidden));
}

std::vector<float> TensorFill::values_by_row(const TensorSpec& spec, LayerId layer, uint64_t first,
                                             size_t count) const {
  const uint64_t key = noise_key(seed_, spec.name);
  const double scale = deviation(spec) / noise_deviation();
  const size_t hidden = common_.size();
  std::vector<float> values;
  values.reserve(count);
  while (values.size() < count) {
    const uint64_t at = first + values.size();
    std::vector<float> row = row_off_common(key, at / hidden, scale);
    if (spec.role == Role::router) {
      const auto bias = static_cast<float>(router_bias(layer, at / hidden));
      for (size_t i = 0; i < hidden; ++i) row[i] += bias * common_[i];
    }
    const auto from = row.begin() + static_cast<std::ptrdiff_t>(at % hidden);
    const auto length = static_cast<std::ptrdiff_t>(count - values.size());
    values.insert(values.end(), from, from + std::min(length, row.end() - from));
  }
  return values;
}

std::vector<float> TensorFill::values(const TensorSpec& spec, LayerId layer, uint64_t first,
                                      size_t count) const {
  if (is_norm(spec.role)) return std::vector<float>(count, 1.0f);
  if (spec.role == Role::selection_bias) return std::vector<float>(count, 0.0f);
  if (spec.role == Role::router || spec.role == Role::output) {
    return values_by_row(spec, layer, first, count);
  }
  const uint64_t key = noise_key(seed_, spec.name);
  std::vector<float> values(count);
  const auto scale = static_cast<float>(deviation(spec) / noise_deviation());
  for (size_t i = 0; i < count; ++i) values[i] = static_cast<float>(noise(key, first + i)) * scale;
  if (spec.role == Role::embedding) {
    const auto common = static_cast<float>(deviation(spec) / kOwn * kCommon);
    for (size_t i = 0; i < count; ++i) values[i] += common * common_[(first + i) % common_.size()];
  }
  return values;
}

void TensorFill::fill(const TensorSpec& spec, LayerId layer, uint64_t first,
                      std::span<std::byte> out) const {
  const auto size = static_cast<size_t>(bytes_per_element(dtype_));
  while (!out.empty()) {
    const size_t count = std::min(out.size() / size, kBlockElements);
    const std::vector<float> block = values(spec, layer, first, count);
    store(out.first(count * size), block);
    first += count;
    out = out.subspan(count * size);
  }
}

void TensorFill::store(std::span<std::byte> out, std::span<const float> values) const {
  switch (dtype_) {
    case DType::F32:
      return store_as<float>(out, values, [](float value) { return value; });
    case DType::F16:
      return store_as<uint16_t>(out, values, float_to_f16);
    case DType::BF16:
      return store_as<uint16_t>(out, values, float_to_bf16);
    default:
      fail(ErrorKind::internal, "random weights are F32, F16 or BF16, not {}", dtype_name(dtype_));
  }
}

}  // namespace klotski
