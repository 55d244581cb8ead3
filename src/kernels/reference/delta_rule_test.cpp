// The definition of the gated delta rule against its formula in double precision.

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "kernels/cpu/delta_rule_testing.h"

namespace klotski {
namespace {

using Numbers = std::vector<double>;

Numbers unit(const float* vector, int64_t size) {
  double squares = 1e-6;
  for (int64_t i = 0; i < size; ++i) squares += double(vector[i]) * vector[i];
  Numbers scaled;
  for (int64_t i = 0; i < size; ++i) scaled.push_back(vector[i] / std::sqrt(squares));
  return scaled;
}

// Results of one value head: out, then the state, by S_t = d S_{t-1} (I - u k k^T) + u v k^T.
Numbers by_formula(const DeltaRule& rule, const DeltaSequence& sequence, int64_t head,
                   double log_decay, double step_bias) {
  const auto keys = static_cast<size_t>(rule.key_dim);
  const int64_t key_head = head * rule.key_heads / rule.value_heads;
  std::vector<Numbers> state(static_cast<size_t>(rule.value_dim), Numbers(keys));  // a row a value
  Numbers results;
  for (int64_t t = 0; t < sequence.tokens; ++t) {
    const float* row = sequence.mixed.data() + t * rule.mixed_width();
    const float* rates = sequence.rates.data() + t * 2 * rule.value_heads;
    const Numbers query = unit(row + key_head * rule.key_dim, rule.key_dim);
    const Numbers key = unit(row + rule.key_width() + key_head * rule.key_dim, rule.key_dim);
    const float* values = row + 2 * rule.key_width() + head * rule.value_dim;
    const double update = 1.0 / (1.0 + std::exp(-double(rates[head])));
    const double step = std::log1p(std::exp(rates[rule.value_heads + head] + step_bias));
    const double decay = std::exp(-std::exp(log_decay) * step);
    for (size_t column = 0; column < state.size(); ++column) {
      Numbers& own = state[column];
      double along = 0.0;
      for (size_t i = 0; i < keys; ++i) along += own[i] * key[i];
      double out = 0.0;
      for (size_t i = 0; i < keys; ++i) {
        own[i] = decay * (own[i] - update * along * key[i]) + update * values[column] * key[i];
        out += own[i] * query[i];
      }
      results.push_back(out / std::sqrt(double(rule.key_dim)));
    }
  }
  return results;
}

TEST(ReferenceDeltaRule, IsItsFormula) {
  const DeltaShape shape{2, 4, 6, 3};
  const DeltaWeights weights(shape, 1);
  const DeltaRule rule = weights.rule(shape);
  const DeltaSequence sequence(rule, 12, false, 2);
  const DeltaResult found = delta_results(reference_processor(), rule, {sequence})[0];
  for (int64_t head = 0; head < 4; ++head) {
    const double log_decay = reinterpret_cast<const float*>(weights.log_decay.bytes.data())[head];
    uint16_t bits;
    std::memcpy(&bits, weights.step_bias.bytes.data() + 2 * head, 2);
    const Numbers expected = by_formula(rule, sequence, head, log_decay, bf16_to_float(bits));
    for (int64_t t = 0; t < 12; ++t) {
      for (int64_t column = 0; column < 3; ++column) {
        EXPECT_NEAR(found.out[static_cast<size_t>((t * 4 + head) * 3 + column)],
                    expected[static_cast<size_t>(t * 3 + column)], 1e-6);
      }
    }
  }
}

TEST(ReferenceDecay, HasAFiniteExponent) {
  EXPECT_EQ(reference::decay_of(0.0f, 1000.0f), 0.0f);
  EXPECT_EQ(reference::decay_of(0.0f, -1000.0f), 1.0f);
  EXPECT_NEAR(reference::decay_of(0.0f, 0.0f), 0.5f, 1e-6f);  // exp(-log 2)
  EXPECT_NEAR(reference::decay_of(std::log(2.0f), 0.0f), 0.25f, 1e-6f);
}

// Two channels, three taps: the sum over the token and the two before it.
TEST(ReferenceConvolution, SeesTheTokensBefore) {
  const Weights weight({1.0f, 10.0f, 100.0f, 0.5f, 0.0f, -1.0f}, DType::F32, {2, 3});
  ConvolutionSequence sequence(2, 2, 3, false, 1);
  sequence.in = {1.0f, 2.0f, 3.0f, 4.0f};
  const auto first =
      convolution_results(reference_processor(), weight, Activation::relu, {sequence})[0];
  EXPECT_EQ(first.out, (std::vector<float>{100.0f, 0.0f, 310.0f, 0.0f}));
  EXPECT_EQ(first.next, sequence.in);
  ConvolutionSequence after(1, 2, 3, false, 1);
  after.in = {5.0f, -6.0f};
  after.past = first.next;
  const auto second =
      convolution_results(reference_processor(), weight, Activation::relu, {after})[0];
  EXPECT_EQ(second.out, (std::vector<float>{531.0f, 7.0f}));
  EXPECT_EQ(second.next, (std::vector<float>{3.0f, 4.0f, 5.0f, -6.0f}));
}

}  // namespace
}  // namespace klotski
