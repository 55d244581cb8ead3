// The gated delta rule and the operations that surround it, against the reference on every
// processor.

#include "kernels/cpu/delta_rule_testing.h"

#include <gtest/gtest.h>

namespace klotski {
namespace {

TEST(CpuDeltaRule, AgreesWithTheReference) {
  unsigned seed = 0;
  for (const DeltaShape& shape : delta_shapes()) {
    const DeltaWeights weights(shape, ++seed);
    const DeltaRule rule = weights.rule(shape);
    const std::vector<DeltaSequence> sequences = {
        {rule, 1, false, 10}, {rule, 9, true, 20}, {rule, 1, true, 30}, {rule, 4, false, 40}};
    const auto expected = delta_results(reference_processor(), rule, sequences);
    with_every_processor([&](const CpuProcessor& processor) {
      SCOPED_TRACE(testing::Message() << shape);
      const auto found = delta_results(processor, rule, sequences);
      for (size_t i = 0; i < sequences.size(); ++i) {
        expect_same_rule(found[i].out, expected[i].out);
        expect_same_rule(found[i].next_state, expected[i].next_state);
      }
    });
  }
}

// A prompt in pieces gives the bits of the whole, alone or among other sequences.
TEST(CpuDeltaRule, ARowDependsOnItsSequenceAlone) {
  for (const DeltaShape& shape : {DeltaShape{2, 4, 8, 12}, DeltaShape{1, 2, 128, 128}}) {
    const DeltaWeights weights(shape, 3);
    const DeltaRule rule = weights.rule(shape);
    const DeltaSequence whole(rule, 23, false, 50);
    const DeltaSequence other(rule, 5, true, 60);
    with_every_processor([&](const CpuProcessor& processor) {
      SCOPED_TRACE(testing::Message() << shape);
      const DeltaResult together = delta_results(processor, rule, {whole, other})[0];
      std::vector<float> state;
      std::vector<float> out;
      for (const auto& [begin, end] : {std::pair{0, 7}, std::pair{7, 8}, std::pair{8, 23}}) {
        const DeltaSequence piece = whole.part(rule, begin, end, state);
        const DeltaResult found = delta_results(processor, rule, {other, piece})[1];
        out.insert(out.end(), found.out.begin(), found.out.end());
        state = found.next_state;
      }
      EXPECT_TRUE(same_bits(out, together.out));
      EXPECT_TRUE(same_bits(state, together.next_state));
    });
  }
}

TEST(CpuConvolution, AgreesWithTheReferenceAndWithItselfInPieces) {
  for (const int64_t taps : {1, 2, 4, 7}) {
    for (const int64_t channels : {1, 13, 96}) {
      const Weights weight(random_floats(channels * taps, 1), DType::BF16, {channels, taps});
      const std::vector<ConvolutionSequence> sequences = {{11, channels, taps, false, 2},
                                                          {1, channels, taps, true, 3},
                                                          {3, channels, taps, taps > 1, 4},
                                                          {2, channels, taps, false, 5}};
      for (const Activation activation :
           {Activation::silu, Activation::gelu, Activation::gelu_tanh, Activation::relu}) {
        SCOPED_TRACE(testing::Message() << channels << " channels, " << taps << " taps");
        const auto expected =
            convolution_results(reference_processor(), weight, activation, sequences);
        with_every_processor([&](const CpuProcessor& processor) {
          const auto found = convolution_results(processor, weight, activation, sequences);
          for (size_t i = 0; i < sequences.size(); ++i) {
            expect_same_rule(found[i].out, expected[i].out);
            EXPECT_TRUE(same_bits(found[i].next, expected[i].next));
          }
          ConvolutionSequence first = sequences[0];
          ConvolutionSequence second = sequences[0];
          first.tokens = 2;
          second.tokens -= 2;
          second.in.erase(second.in.begin(), second.in.begin() + 2 * channels);
          second.past = convolution_results(processor, weight, activation, {first})[0].next;
          const auto rest = convolution_results(processor, weight, activation, {second})[0];
          EXPECT_TRUE(
              same_bits(rest.out, std::span(found[0].out).last(size_t(second.tokens * channels))));
          EXPECT_TRUE(same_bits(rest.next, found[0].next));
        });
      }
    }
  }
}

TEST(CpuHeadParts, AreThoseOfTheReference) {
  constexpr int64_t kRows = 70, kHeads = 3;
  const std::vector<float> in = random_floats(kRows * kHeads * 21, 1);
  const auto split = [&](const Processor& ops, Rows mixed, Rows gates) {
    const std::array parts = {HeadPart{mixed, 0, 4}, HeadPart{mixed, 12, 6},
                              HeadPart{gates, 0, 11}};
    ops.split_heads({in.data(), kRows, kHeads * 21}, kHeads, parts);
  };
  Output mixed(kRows, 30), gates(kRows, 33);
  split(reference_processor(), mixed.rows(), gates.rows());
  EXPECT_EQ(mixed.rows().row(1)[4], in[63 + 21]);
  EXPECT_EQ(mixed.rows().row(1)[12 + 6], in[63 + 21 + 4]);
  EXPECT_EQ(gates.rows().row(2)[22], in[2 * 63 + 2 * 21 + 10]);
  with_every_processor([&](const CpuProcessor& processor) {
    Output own_mixed(kRows, 30), own_gates(kRows, 33);
    split(processor, own_mixed.rows(), own_gates.rows());
    EXPECT_TRUE(same_bits(own_mixed.values(), mixed.values()));
    EXPECT_TRUE(same_bits(own_gates.values(), gates.values()));
  });
}

TEST(CpuOutputGates, AgreeWithTheReference) {
  for (const int64_t width : {1, 31, 300}) {
    constexpr int64_t kRows = 9;
    const std::vector<float> values = random_floats(kRows * width, 1);
    const std::vector<float> gates = random_floats(kRows * width, 2);
    for (const OutputGate function : {OutputGate::sigmoid, OutputGate::silu}) {
      std::vector<float> expected = values;
      const ConstRows gate_rows{gates.data(), kRows, width};
      reference_processor().apply_gates({expected.data(), kRows, width}, gate_rows, function);
      with_every_processor([&](const CpuProcessor& processor) {
        std::vector<float> found = values;
        processor.apply_gates({found.data(), kRows, width}, gate_rows, function);
        expect_close(found, expected, absolute(values), 1e-5);
        std::vector<float> last(values.end() - width, values.end());
        processor.apply_gates({last.data(), 1, width}, {gate_rows.row(kRows - 1), 1, width},
                              function);
        EXPECT_TRUE(same_bits(last, std::span(found).last(static_cast<size_t>(width))));
      });
    }
  }
}

TEST(CpuNormOffset, IsAddedToWeights) {
  const std::vector<float> in = random_floats(40, 1);
  const std::vector<float> stored = random_floats(8, 2);
  std::vector<float> moved = stored;
  for (float& value : moved) value += 1.0f;
  const Weights around_zero(stored, DType::F32, {8});
  const Weights plain(moved, DType::F32, {8});
  with_every_processor([&](const CpuProcessor& processor) {
    Output found(5, 8), expected(5, 8);
    processor.rms_norm(found.rows(), {in.data(), 5, 8}, around_zero.view, 1e-5f, 1.0f);
    processor.rms_norm(expected.rows(), {in.data(), 5, 8}, plain.view, 1e-5f);
    EXPECT_TRUE(same_bits(found.values(), expected.values()));
  });
}

}  // namespace
}  // namespace klotski
