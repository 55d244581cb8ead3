#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "kernels/cuda/testing.h"

namespace klotski {
namespace {

using GpuRoute = GpuTest;

struct Routed {
  std::vector<ExpertId> experts;
  std::vector<float> weights;
  std::vector<float> gaps;
};

struct Case {
  int64_t tokens;
  int64_t experts;
  RouterRule rule;
  bool biased = false;
};

Routed by_reference(const Case& given, const std::vector<float>& logits,
                    const std::vector<float>& bias) {
  const auto choices = static_cast<size_t>(given.tokens * given.rule.top_k);
  Routed routed{std::vector<ExpertId>(choices), std::vector<float>(choices, kPoison),
                std::vector<float>(static_cast<size_t>(given.tokens), kPoison)};
  reference_processor().route({.logits = {logits.data(), given.tokens, given.experts},
                               .selection_bias = bias,
                               .rule = given.rule,
                               .experts = routed.experts,
                               .weights = routed.weights,
                               .gaps = routed.gaps});
  return routed;
}

Routed on_device(const Processor& ops, const Case& given, const std::vector<float>& logits,
                 const std::vector<float>& bias, bool with_gaps = true) {
  const auto choices = static_cast<size_t>(given.tokens * given.rule.top_k);
  const DeviceArray<float> device_logits{std::span<const float>(logits)};
  const DeviceArray<float> device_bias{std::span<const float>(bias)};
  const DeviceArray<ExpertId> experts(choices);
  const DeviceArray<float> weights(choices);
  const DeviceArray<float> gaps(static_cast<size_t>(given.tokens));
  ops.route({.logits = {device_logits.data(), given.tokens, given.experts},
             .selection_bias = bias.empty() ? std::span<const float>() : device_bias.span(),
             .rule = given.rule,
             .experts = experts.span(),
             .weights = weights.span(),
             .gaps = with_gaps ? gaps.span() : std::span<float>()});
  return {experts.download(), weights.download(), gaps.download()};
}

void expect_same(const Routed& found, const Routed& expected) {
  ASSERT_EQ(found.experts, expected.experts);
  for (size_t i = 0; i < found.weights.size(); ++i) {
    ASSERT_NEAR(found.weights[i], expected.weights[i], 1e-5 * std::fabs(expected.weights[i]) + 1e-9)
        << "choice " << i;
  }
  for (size_t i = 0; i < found.gaps.size(); ++i) {
    if (std::isinf(expected.gaps[i])) {
      ASSERT_EQ(found.gaps[i], expected.gaps[i]) << "token " << i;
    } else {
      ASSERT_NEAR(found.gaps[i], expected.gaps[i], 1e-5) << "token " << i;
    }
  }
}

// Logits are multiples of 1/64: equal or clearly apart, so that rounding decides nothing.
std::vector<float> coarse_logits(int64_t count, unsigned seed) {
  std::vector<float> values = random_floats(count, seed);
  for (float& value : values) value = std::round(value * 64.0f) / 64.0f;
  return values;
}

void check(const Processor& ops, const Case& given) {
  SCOPED_TRACE(std::to_string(given.experts) + " experts, " + std::to_string(given.rule.groups) +
               " groups, top " + std::to_string(given.rule.top_k));
  const auto seed = static_cast<unsigned>(given.experts + given.rule.top_k);
  const std::vector<float> logits = coarse_logits(given.tokens * given.experts, seed);
  const std::vector<float> bias =
      given.biased ? random_floats(given.experts, seed + 1) : std::vector<float>();
  expect_same(on_device(ops, given, logits, bias), by_reference(given, logits, bias));
}

TEST_F(GpuRoute, AgreesWithTheReference) {
  for (const ScoreFunction score : {ScoreFunction::softmax, ScoreFunction::sigmoid}) {
    for (const bool renormalise : {false, true}) {
      const auto rule = [&](int top_k) {
        return RouterRule{
            .score = score, .top_k = top_k, .renormalise = renormalise, .scale = 2.5f};
      };
      check(ops(), {1, 1, rule(1)});
      check(ops(), {5, 8, rule(2)});
      check(ops(), {67, 60, rule(4)});
      check(ops(), {130, 128, rule(8)});
      check(ops(), {9, 33, rule(33)});
      check(ops(), {6, 1024, rule(40)});
      check(ops(), {50, 256, rule(8), true});
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(GpuRoute, GroupsAgreeWithTheReference) {
  for (const GroupScore group_score : {GroupScore::best, GroupScore::best_two}) {
    const auto rule = [&](int top_k, int groups, int kept) {
      return RouterRule{.score = ScoreFunction::sigmoid,
                        .top_k = top_k,
                        .groups = groups,
                        .groups_kept = kept,
                        .group_score = group_score,
                        .renormalise = true};
    };
    check(ops(), {70, 256, rule(8, 8, 4), true});
    check(ops(), {70, 160, rule(6, 8, 3), true});
    check(ops(), {33, 64, rule(4, 64, 10), true});
    check(ops(), {33, 8, rule(4, 2, 1), true});
    check(ops(), {33, 8, rule(3, 2, 2), true});
    check(ops(), {3, 1024, rule(16, 1024, 100), true});
    if (HasFatalFailure()) return;
  }
}

TEST_F(GpuRoute, SparseMixersAndLeastSumsAgreeWithTheReference) {
  for (const float jitter : {0.0f, 0.013f, 0.2f, 3.0f}) {
    check(ops(), {70, 16, {.score = ScoreFunction::sparse_mixer, .top_k = 2, .jitter = jitter}});
    check(ops(), {9, 128, {.score = ScoreFunction::sparse_mixer, .top_k = 4, .jitter = jitter}});
    if (HasFatalFailure()) return;
  }
  check(ops(), {70, 64, {.top_k = 6, .renormalise = true, .least_sum = 0.9f}});
}

TEST_F(GpuRoute, TiesGoToTheLowerExpert) {
  const std::vector<float> equal(64, 0.25f);
  const Case given{1, 64, {.top_k = 5}};
  expect_same(on_device(ops(), given, equal, {}), by_reference(given, equal, {}));
  const Case grouped{1, 64, {.top_k = 5, .groups = 8, .groups_kept = 2}};
  expect_same(on_device(ops(), grouped, equal, {}), by_reference(grouped, equal, {}));
}

TEST_F(GpuRoute, InfinitiesAndNansAreOrderedAsInTheReference) {
  std::vector<float> logits = coarse_logits(4 * 40, 3);
  logits[5] = kPoison;
  logits[40 + 7] = -kInfinity;
  for (size_t i = 80; i < 120; ++i) logits[i] = kPoison;
  for (size_t i = 120; i < 160; ++i) logits[i] = i % 3 == 0 ? 1.0f : -kInfinity;
  for (const ScoreFunction score : {ScoreFunction::softmax, ScoreFunction::sigmoid}) {
    for (const int groups : {1, 4}) {
      const Case given{
          4, 40, {.score = score, .top_k = 20, .groups = groups, .groups_kept = groups / 2 + 1}};
      EXPECT_EQ(on_device(ops(), given, logits, {}).experts,
                by_reference(given, logits, {}).experts);
    }
  }
}

TEST_F(GpuRoute, GapsMayBeUnwanted) {
  const Case given{9, 16, {.top_k = 2}};
  const std::vector<float> logits = coarse_logits(9 * 16, 3);
  const Routed found = on_device(ops(), given, logits, {}, false);
  EXPECT_EQ(found.experts, by_reference(given, logits, {}).experts);
  for (const float gap : found.gaps) EXPECT_TRUE(std::isnan(gap));
}

TEST_F(GpuRoute, NoTokensAreNoWork) {
  ops().route(
      {.logits = {nullptr, 0, 8}, .selection_bias = {}, .rule = {}, .experts = {}, .weights = {}});
  ops().memory.finish();
}

}  // namespace
}  // namespace klotski
