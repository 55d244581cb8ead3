#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/reference/reference_processor.h"

namespace klotski {

TokenId most_likely(std::span<const float> logits) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  float best = -kInfinity;
  TokenId token = -1;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (!(logits[i] < kInfinity)) return -1;
    if (logits[i] <= best) continue;
    best = logits[i];
    token = static_cast<TokenId>(i);
  }
  return token;
}

namespace reference {

namespace {

float activate(Activation activation, float x) {
  switch (activation) {
    case Activation::silu:
      return x / (1.0f + std::exp(-x));
    case Activation::gelu:
      return 0.5f * x * (1.0f + std::erf(x * 0.70710678118654752f));
    case Activation::gelu_tanh:
      return 0.5f * x * (1.0f + std::tanh(0.79788456080286536f * (x + 0.044715f * x * x * x)));
    case Activation::relu:
      return std::max(x, 0.0f);
    case Activation::clamped_swiglu:
      break;
  }
  return x;
}

float clamped_swiglu(float gate, float up, const ClampedSwiglu& rule) {
  const float g = gate > rule.limit ? rule.limit : gate;
  const float u = up > rule.limit ? rule.limit : up < -rule.limit ? -rule.limit : up;
  return g * sigmoid_of(rule.slope * g) * (u + 1.0f);
}

}  // namespace

float sigmoid_of(float value) { return 1.0f / (1.0f + std::exp(-value)); }

void gate(Rows gate, ConstRows up, Activation activation, const ClampedSwiglu& swiglu) {
  for (int64_t i = 0; i < gate.count * gate.width; ++i) {
    gate.data[i] = activation == Activation::clamped_swiglu
                       ? clamped_swiglu(gate.data[i], up.data[i], swiglu)
                       : activate(activation, gate.data[i]) * up.data[i];
  }
}

void ReferenceProcessor::scale_rows(Rows rows, std::span<const float> factors) const {
  for (int64_t i = 0; i < rows.count; ++i) {
    const float factor = factors[static_cast<size_t>(i)];
    for (int64_t c = 0; c < rows.width; ++c) rows.row(i)[c] *= factor;
  }
}

void ReferenceProcessor::add(Rows out, ConstRows in) const {
  for (int64_t i = 0; i < out.count * out.width; ++i) out.data[i] += in.data[i];
}

void ReferenceProcessor::gather(Rows out, ConstRows in, std::span<const int32_t> rows) const {
  for (int64_t i = 0; i < out.count; ++i) {
    std::copy_n(in.row(rows[static_cast<size_t>(i)]), out.width, out.row(i));
  }
}

void ReferenceProcessor::most_likely(std::span<TokenId> tokens, ConstRows logits) const {
  for (int64_t i = 0; i < logits.count; ++i) {
    tokens[static_cast<size_t>(i)] =
        klotski::most_likely({logits.row(i), static_cast<size_t>(logits.width)});
  }
}

void ReferenceProcessor::scatter(Rows out, ConstRows in, std::span<const int32_t> rows) const {
  for (int64_t i = 0; i < in.count; ++i) {
    std::copy_n(in.row(i), in.width, out.row(rows[static_cast<size_t>(i)]));
  }
}

void ReferenceProcessor::scatter_add(Rows out, ConstRows in, std::span<const int32_t> rows) const {
  for (int64_t i = 0; i < in.count; ++i) {
    add({out.row(rows[static_cast<size_t>(i)]), 1, in.width}, {in.row(i), 1, in.width});
  }
}

void ReferenceProcessor::combine(Rows out, ConstRows results,
                                 std::span<const float> weights) const {
  const int64_t top_k = results.count / std::max<int64_t>(out.count, 1);
  for (int64_t i = 0; i < out.count; ++i) {
    for (int64_t choice = i * top_k; choice < (i + 1) * top_k; ++choice) {
      const float weight = weights[static_cast<size_t>(choice)];
      for (int64_t c = 0; c < out.width; ++c) out.row(i)[c] += weight * results.row(choice)[c];
    }
  }
}

void ReferenceProcessor::clip(std::span<float> values, float limit) const {
  for (float& value : values) value = std::min(std::max(value, -limit), limit);
}

void ReferenceProcessor::scale(std::span<float> values, float factor) const {
  for (float& value : values) value *= factor;
}

void ReferenceProcessor::sigmoid(std::span<float> values) const {
  for (float& value : values) value = sigmoid_of(value);
}

}  // namespace reference

}  // namespace klotski
