// The gated delta rule and the operations that surround it, against the reference.

#include <gtest/gtest.h>

#include <array>

#include "kernels/cpu/delta_rule_testing.h"
#include "kernels/cuda/testing.h"

namespace klotski {
namespace {

using GpuDeltaRule = GpuTest;
using GpuConvolution = GpuTest;
using GpuHeadParts = GpuTest;
using GpuOutputGates = GpuTest;
using GpuNormOffset = GpuTest;

// A sequence on the device, with its output and the state after it.
struct DeviceDelta {
  DeviceArray<float> mixed, rates;
  std::optional<DeviceArray<float>> state;
  DeviceOutput out, next_state;

  DeviceDelta(const DeltaRule& rule, const DeltaSequence& one)
      : mixed(std::span<const float>(one.mixed)),
        rates(std::span<const float>(one.rates)),
        out(one.tokens, rule.value_width()),
        next_state(1, rule.state_numbers()) {
    if (!one.state.empty()) state.emplace(std::span<const float>(one.state));
  }
  DeltaRuleArguments arguments(const DeltaRule& rule) const {
    const int64_t tokens = out.rows().count;
    return {.out = out.rows(),
            .mixed = {mixed.data(), tokens, rule.mixed_width()},
            .rates = {rates.data(), tokens, 2 * rule.value_heads},
            .state = state ? state->data() : nullptr,
            .next_state = next_state.rows().data};
  }
};

std::vector<DeltaResult> on_device(const Processor& ops, const DeltaRule& rule,
                                   const DeltaWeights& weights,
                                   const std::vector<DeltaSequence>& sequences) {
  const DeviceTensor log_decay(weights.log_decay), step_bias(weights.step_bias);
  DeltaRule own = rule;
  own.log_decay = log_decay.view();
  own.step_bias = step_bias.view();
  std::vector<DeviceDelta> device;
  for (const DeltaSequence& one : sequences) device.emplace_back(rule, one);
  std::vector<DeltaRuleArguments> arguments;
  for (const DeviceDelta& one : device) arguments.push_back(one.arguments(rule));
  ops.gated_delta_rule(arguments, own);
  std::vector<DeltaResult> results;
  for (const DeviceDelta& one : device) {
    results.push_back({one.out.download(), one.next_state.download()});
  }
  return results;
}

TEST_F(GpuDeltaRule, AgreesWithTheReference) {
  unsigned seed = 0;
  for (const DeltaShape& shape : delta_shapes()) {
    SCOPED_TRACE(testing::Message() << shape);
    const DeltaWeights weights(shape, ++seed);
    const DeltaRule rule = weights.rule(shape);
    const std::vector<DeltaSequence> sequences = {
        {rule, 1, false, 10}, {rule, 37, true, 20}, {rule, 1, true, 30}, {rule, 4, false, 40}};
    const auto expected = delta_results(reference_processor(), rule, sequences);
    const auto found = on_device(ops(), rule, weights, sequences);
    for (size_t i = 0; i < sequences.size(); ++i) {
      expect_same_rule(found[i].out, expected[i].out);
      expect_same_rule(found[i].next_state, expected[i].next_state);
    }
    if (HasFatalFailure()) return;
  }
}

TEST_F(GpuDeltaRule, APromptInPiecesIsTheWholePrompt) {
  for (const DeltaShape& shape : {DeltaShape{2, 4, 8, 12}, DeltaShape{1, 2, 128, 128}}) {
    const DeltaWeights weights(shape, 3);
    const DeltaRule rule = weights.rule(shape);
    const DeltaSequence whole(rule, 23, false, 50);
    const DeltaResult together = on_device(ops(), rule, weights, {whole})[0];
    std::vector<float> state;
    std::vector<float> out;
    for (const auto& [begin, end] : {std::pair{0, 7}, std::pair{7, 8}, std::pair{8, 23}}) {
      const DeltaResult found =
          on_device(ops(), rule, weights, {whole.part(rule, begin, end, state)})[0];
      out.insert(out.end(), found.out.begin(), found.out.end());
      state = found.next_state;
    }
    EXPECT_TRUE(same_bits(out, together.out));
    EXPECT_TRUE(same_bits(state, together.next_state));
  }
}

TEST_F(GpuDeltaRule, NoSequencesAreNoWork) {
  ops().gated_delta_rule({}, {});
  ops().causal_convolution({}, TensorView(), Activation::silu);
  ops().memory.finish();
}

TEST_F(GpuConvolution, AgreesWithTheReference) {
  for (const int64_t taps : {1, 2, 4, 7}) {
    for (const int64_t channels : {1, 13, 300}) {
      for (const Activation activation :
           {Activation::silu, Activation::gelu, Activation::gelu_tanh, Activation::relu}) {
        SCOPED_TRACE(testing::Message() << channels << " channels, " << taps << " taps");
        const Weights weight(random_floats(channels * taps, 1), DType::BF16, {channels, taps});
        const std::vector<ConvolutionSequence> sequences = {{37, channels, taps, false, 2},
                                                            {1, channels, taps, taps > 1, 3},
                                                            {3, channels, taps, taps > 1, 4}};
        const auto expected =
            convolution_results(reference_processor(), weight, activation, sequences);
        const DeviceTensor device_weight(weight);
        std::vector<DeviceArray<float>> ins, pasts;
        std::vector<DeviceOutput> outs, nexts;
        std::vector<ConvolutionArguments> arguments;
        for (const ConvolutionSequence& one : sequences) {
          ins.emplace_back(std::span<const float>(one.in));
          pasts.emplace_back(std::span<const float>(one.past));
          outs.emplace_back(one.tokens, channels);
          nexts.emplace_back(taps - 1, channels);
          arguments.push_back({.out = outs.back().rows(),
                               .in = {ins.back().data(), one.tokens, channels},
                               .past = one.past.empty() ? nullptr : pasts.back().data(),
                               .next = nexts.back().rows().data});
        }
        ops().causal_convolution(arguments, device_weight.view(), activation);
        for (size_t i = 0; i < sequences.size(); ++i) {
          expect_same_rule(outs[i].download(), expected[i].out);
          EXPECT_TRUE(same_bits(nexts[i].download(), expected[i].next));
        }
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_F(GpuHeadParts, AreThoseOfTheReference) {
  constexpr int64_t kRows = 70, kHeads = 3, kHeadWidth = 221;
  const std::vector<float> in = random_floats(kRows * kHeads * kHeadWidth, 1);
  const auto split = [&](const Processor& by, const float* from, Rows mixed, Rows gates) {
    const std::array parts = {HeadPart{mixed, 0, 4}, HeadPart{mixed, 12, 206},
                              HeadPart{gates, 0, 11}};
    by.split_heads({from, kRows, kHeads * kHeadWidth}, kHeads, parts);
  };
  std::vector<float> mixed(kRows * 630), gates(kRows * 33);
  split(reference_processor(), in.data(), {mixed.data(), kRows, 630}, {gates.data(), kRows, 33});
  const DeviceArray<float> device_in{std::span<const float>(in)};
  const DeviceOutput device_mixed(kRows, 630), device_gates(kRows, 33);
  split(ops(), device_in.data(), device_mixed.rows(), device_gates.rows());
  EXPECT_TRUE(same_bits(device_mixed.download(), mixed));
  EXPECT_TRUE(same_bits(device_gates.download(), gates));
}

TEST_F(GpuOutputGates, AgreeWithTheReference) {
  for (const int64_t width : {1, 31, 4096}) {
    constexpr int64_t kRows = 9;
    const std::vector<float> values = random_floats(kRows * width, 1);
    const std::vector<float> gates = random_floats(kRows * width, 2);
    const DeviceArray<float> device_gates{std::span<const float>(gates)};
    for (const OutputGate function : {OutputGate::sigmoid, OutputGate::silu}) {
      std::vector<float> expected = values;
      reference_processor().apply_gates({expected.data(), kRows, width},
                                        {gates.data(), kRows, width}, function);
      const DeviceArray<float> found{std::span<const float>(values)};
      ops().apply_gates({found.data(), kRows, width}, {device_gates.data(), kRows, width},
                        function);
      expect_close(found.download(), expected, absolute(values), 1e-5);
    }
  }
}

TEST_F(GpuNormOffset, IsAddedToWeights) {
  for (const int64_t width : {8, 1032}) {
    const std::vector<float> in = random_floats(5 * width, 1);
    const Weights weight(random_floats(width, 2), DType::BF16, {width});
    std::vector<float> expected(in.size(), kPoison);
    reference_processor().rms_norm({expected.data(), 5, width}, {in.data(), 5, width}, weight.view,
                                   1e-5f, 1.0f);
    const DeviceArray<float> device_in{std::span<const float>(in)};
    const DeviceTensor device_weight(weight);
    const DeviceOutput out(5, width);
    ops().rms_norm(out.rows(), {device_in.data(), 5, width}, device_weight.view(), 1e-5f, 1.0f);
    expect_close(out.download(), expected, absolute(expected), 3e-5);
  }
}

}  // namespace
}  // namespace klotski
