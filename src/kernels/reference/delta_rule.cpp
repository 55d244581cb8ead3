// The gated delta rule, and the operations that surround it: the causal convolution before it and
// the gates after it.

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/reference/reference_processor.h"
#include "kernels/reference/weight_row.h"

namespace klotski::reference {

namespace {

constexpr float kLengthEpsilon = 1e-6f;  // added to squared lengths of queries and keys

// Scales a vector to a length; a vector of zeros stays one.
void scale_to(float* vector, int64_t size, float length) {
  float squares = 0.0f;
  for (int64_t i = 0; i < size; ++i) squares += vector[i] * vector[i];
  const float factor = length / std::sqrt(squares + kLengthEpsilon);
  for (int64_t i = 0; i < size; ++i) vector[i] *= factor;
}

// Brings a row's queries, keys and rates to the numbers that the rule computes with.
void prepare_row(const DeltaRule& rule, float* mixed, float* rates) {
  const float query_length = 1.0f / std::sqrt(static_cast<float>(rule.key_dim));
  for (int64_t head = 0; head < rule.key_heads; ++head) {
    scale_to(mixed + head * rule.key_dim, rule.key_dim, query_length);
    scale_to(mixed + rule.key_width() + head * rule.key_dim, rule.key_dim, 1.0f);
  }
  for (int64_t head = 0; head < rule.value_heads; ++head) {
    float& step = rates[rule.value_heads + head];
    rates[head] = sigmoid_of(rates[head]);
    step = decay_of(load_element(rule.log_decay, head), step + load_element(rule.step_bias, head));
  }
}

// One token of one value head.
void update_head(const DeltaRule& rule, const DeltaRuleArguments& sequence, int64_t token,
                 int64_t head) {
  const int64_t key_head = head / (rule.value_heads / rule.key_heads);
  const float* query = sequence.mixed.row(token) + key_head * rule.key_dim;
  const float* key = query + rule.key_width();
  const float* value = sequence.mixed.row(token) + 2 * rule.key_width() + head * rule.value_dim;
  const float update = sequence.rates.row(token)[head];
  const float decay = sequence.rates.row(token)[rule.value_heads + head];
  float* state = sequence.next_state + head * rule.key_dim * rule.value_dim;
  float* out = sequence.out.row(token) + head * rule.value_dim;
  for (int64_t column = 0; column < rule.value_dim; ++column) {
    float recalled = 0.0f;
    for (int64_t i = 0; i < rule.key_dim; ++i) {
      state[i * rule.value_dim + column] *= decay;
      recalled += state[i * rule.value_dim + column] * key[i];
    }
    const float delta = (value[column] - recalled) * update;
    float sum = 0.0f;
    for (int64_t i = 0; i < rule.key_dim; ++i) {
      state[i * rule.value_dim + column] += key[i] * delta;
      sum += state[i * rule.value_dim + column] * query[i];
    }
    out[column] = sum;
  }
}

// The input of a channel `back` tokens before a token.
float convolved_input(const ConvolutionArguments& sequence, int64_t token, int64_t back,
                      int64_t taps, int64_t channel) {
  const int64_t at = token - back;
  if (at >= 0) return sequence.in.row(at)[channel];
  return sequence.past ? sequence.past[(taps - 1 + at) * sequence.in.width + channel] : 0.0f;
}

void keep_last_inputs(const ConvolutionArguments& sequence, int64_t taps) {
  const int64_t channels = sequence.in.width;
  const int64_t last = sequence.in.count - 1;
  for (int64_t back = 0; back < taps - 1; ++back) {
    float* kept = sequence.next + (taps - 2 - back) * channels;
    for (int64_t c = 0; c < channels; ++c) kept[c] = convolved_input(sequence, last, back, taps, c);
  }
}

}  // namespace

float decay_of(float log_decay, float step) {
  constexpr float kLinear = 20.0f;  // softplus of more is the number itself
  const float softplus = step > kLinear ? step : std::log1p(std::exp(step));
  return std::exp(-std::exp(log_decay) * softplus);
}

void ReferenceProcessor::split_heads(ConstRows in, int64_t heads,
                                     std::span<const HeadPart> parts) const {
  const int64_t head_width = in.width / heads;
  for (int64_t row = 0; row < in.count; ++row) {
    for (int64_t head = 0; head < heads; ++head) {
      const float* from = in.row(row) + head * head_width;
      for (const HeadPart& part : parts) {
        std::copy_n(from, part.width, part.out.row(row) + part.first + head * part.width);
        from += part.width;
      }
    }
  }
}

void ReferenceProcessor::apply_gates(Rows values, ConstRows gates, OutputGate function) const {
  for (int64_t i = 0; i < values.count * values.width; ++i) {
    const float gate = gates.data[i];
    values.data[i] *= function == OutputGate::silu ? gate * sigmoid_of(gate) : sigmoid_of(gate);
  }
}

void ReferenceProcessor::causal_convolution(std::span<const ConvolutionArguments> sequences,
                                            const TensorView& weight, Activation activation) const {
  const int64_t taps = weight.columns();
  for (const ConvolutionArguments& sequence : sequences) {
    const std::vector<float> ones(static_cast<size_t>(sequence.in.width), 1.0f);
    for (int64_t token = 0; token < sequence.in.count; ++token) {
      for (int64_t channel = 0; channel < sequence.in.width; ++channel) {
        float sum = 0.0f;
        for (int64_t tap = 0; tap < taps; ++tap) {
          sum += load_element(weight, channel * taps + tap) *
                 convolved_input(sequence, token, taps - 1 - tap, taps, channel);
        }
        sequence.out.row(token)[channel] = sum;
      }
      gate({sequence.out.row(token), 1, sequence.out.width}, {ones.data(), 1, sequence.out.width},
           activation);
    }
    keep_last_inputs(sequence, taps);
  }
}

void ReferenceProcessor::gated_delta_rule(std::span<const DeltaRuleArguments> sequences,
                                          const DeltaRule& rule) const {
  for (const DeltaRuleArguments& sequence : sequences) {
    if (sequence.state) {
      std::copy_n(sequence.state, rule.state_numbers(), sequence.next_state);
    } else {
      std::fill_n(sequence.next_state, rule.state_numbers(), 0.0f);
    }
    for (int64_t token = 0; token < sequence.mixed.count; ++token) {
      prepare_row(rule, sequence.mixed.row(token), sequence.rates.row(token));
      for (int64_t head = 0; head < rule.value_heads; ++head) {
        update_head(rule, sequence, token, head);
      }
    }
  }
}

}  // namespace klotski::reference
