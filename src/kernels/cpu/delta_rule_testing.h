#pragma once

// Sequences for tests of the gated delta rule and of the convolution before it.

#include <ostream>

#include "kernels/cpu/testing.h"

namespace klotski {

struct DeltaShape {
  int64_t key_heads, value_heads, key_dim, value_dim;

  friend std::ostream& operator<<(std::ostream& out, const DeltaShape& shape) {
    return out << shape.key_heads << " heads of " << shape.key_dim << " for " << shape.value_heads
               << " of " << shape.value_dim;
  }
};

inline std::vector<DeltaShape> delta_shapes() {
  return {{1, 1, 1, 1},   {1, 3, 5, 7},    {2, 4, 8, 12},    {3, 3, 7, 5},    {2, 4, 16, 64},
          {1, 2, 32, 33}, {1, 1, 64, 130}, {1, 2, 128, 128}, {1, 1, 256, 40}, {1, 1, 300, 70}};
}

// Parameters of a rule: of F32 and BF16 numbers.
struct DeltaWeights {
  Weights log_decay;
  Weights step_bias;

  DeltaWeights(const DeltaShape& shape, unsigned seed)
      : log_decay(random_floats(shape.value_heads, seed), DType::F32, {shape.value_heads}),
        step_bias(random_floats(shape.value_heads, seed + 1), DType::BF16, {shape.value_heads}) {}

  DeltaRule rule(const DeltaShape& shape) const {
    return {shape.key_heads, shape.value_heads, shape.key_dim,
            shape.value_dim, log_decay.view,    step_bias.view};
  }
};

// One sequence: its rows, and its state before them where it has one.
struct DeltaSequence {
  int64_t tokens;
  std::vector<float> mixed, rates, state;

  DeltaSequence(const DeltaRule& rule, int64_t rows, bool begun, unsigned seed)
      : tokens(rows),
        mixed(random_floats(rows * rule.mixed_width(), seed)),
        rates(random_floats(rows * 2 * rule.value_heads, seed + 1)),
        state(begun ? random_floats(rule.state_numbers(), seed + 2) : std::vector<float>()) {}

  // Rows begin .. end - 1, after `before`.
  DeltaSequence part(const DeltaRule& rule, int64_t begin, int64_t end,
                     std::vector<float> before) const {
    DeltaSequence some = *this;
    const auto cut = [&](std::vector<float>& rows, int64_t width) {
      rows = {rows.begin() + begin * width, rows.begin() + end * width};
    };
    some.tokens = end - begin;
    cut(some.mixed, rule.mixed_width());
    cut(some.rates, 2 * rule.value_heads);
    some.state = std::move(before);
    return some;
  }
};

struct DeltaResult {
  std::vector<float> out, next_state;
};

// The results of several sequences in one call, on a processor that computes in the program's
// memory.
inline std::vector<DeltaResult> delta_results(const Processor& ops, const DeltaRule& rule,
                                              std::vector<DeltaSequence> sequences) {
  std::vector<Output> outs;
  std::vector<Output> states;
  std::vector<DeltaRuleArguments> arguments;
  for (const DeltaSequence& one : sequences) {
    outs.emplace_back(one.tokens, rule.value_width());
    states.emplace_back(1, rule.state_numbers());
  }
  for (size_t i = 0; i < sequences.size(); ++i) {
    DeltaSequence& one = sequences[i];
    arguments.push_back({.out = outs[i].rows(),
                         .mixed = {one.mixed.data(), one.tokens, rule.mixed_width()},
                         .rates = {one.rates.data(), one.tokens, 2 * rule.value_heads},
                         .state = one.state.empty() ? nullptr : one.state.data(),
                         .next_state = states[i].rows().data});
  }
  ops.gated_delta_rule(arguments, rule);
  std::vector<DeltaResult> results;
  for (size_t i = 0; i < sequences.size(); ++i) {
    EXPECT_TRUE(outs[i].guards_are_whole() && states[i].guards_are_whole());
    const auto out = outs[i].values();
    const auto state = states[i].values();
    results.push_back({{out.begin(), out.end()}, {state.begin(), state.end()}});
  }
  return results;
}

// Compares numbers that many sums went into: errors are judged by the largest number.
inline void expect_same_rule(std::span<const float> found, std::span<const float> expected) {
  float largest = 1e-3f;
  for (const float value : expected) largest = std::max(largest, std::fabs(value));
  expect_close(found, expected, std::vector<float>(expected.size(), largest), 2e-5);
}

// A sequence for a convolution of `channels` channels with `taps` taps.
struct ConvolutionSequence {
  int64_t tokens, channels;
  std::vector<float> in, past;

  ConvolutionSequence(int64_t rows, int64_t width, int64_t taps, bool begun, unsigned seed)
      : tokens(rows),
        channels(width),
        in(random_floats(rows * width, seed)),
        past(begun ? random_floats((taps - 1) * width, seed + 1) : std::vector<float>()) {}
};

struct ConvolutionResult {
  std::vector<float> out, next;
};

inline std::vector<ConvolutionResult> convolution_results(
    const Processor& ops, const Weights& weight, Activation activation,
    const std::vector<ConvolutionSequence>& sequences) {
  const int64_t kept = weight.view.columns() - 1;
  std::vector<Output> outs;
  std::vector<Output> nexts;
  std::vector<ConvolutionArguments> arguments;
  for (const ConvolutionSequence& one : sequences) {
    outs.emplace_back(one.tokens, one.channels);
    nexts.emplace_back(kept, one.channels);
  }
  for (size_t i = 0; i < sequences.size(); ++i) {
    const ConvolutionSequence& one = sequences[i];
    arguments.push_back({.out = outs[i].rows(),
                         .in = {one.in.data(), one.tokens, one.channels},
                         .past = one.past.empty() ? nullptr : one.past.data(),
                         .next = nexts[i].rows().data});
  }
  ops.causal_convolution(arguments, weight.view, activation);
  std::vector<ConvolutionResult> results;
  for (size_t i = 0; i < sequences.size(); ++i) {
    EXPECT_TRUE(outs[i].guards_are_whole() && nexts[i].guards_are_whole());
    const auto out = outs[i].values();
    const auto next = nexts[i].values();
    results.push_back({{out.begin(), out.end()}, {next.begin(), next.end()}});
  }
  return results;
}

}  // namespace klotski
