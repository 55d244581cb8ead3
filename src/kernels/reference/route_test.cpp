#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "kernels/testing.h"

namespace klotski {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct Routed {
  std::vector<int> experts;
  std::vector<float> weights;
};

Routed route_one(const std::vector<float>& logits, const RouterRule& rule,
                 const std::vector<float>& bias = {}) {
  std::vector<ExpertId> experts(static_cast<size_t>(rule.top_k), ExpertId(-1));
  Routed result;
  result.weights.assign(experts.size(), kNan);
  reference_processor().route({.logits = {logits.data(), 1, static_cast<int64_t>(logits.size())},
                               .selection_bias = bias,
                               .rule = rule,
                               .experts = experts,
                               .weights = result.weights});
  for (const ExpertId expert : experts) result.experts.push_back(expert.value);
  return result;
}

TEST(ReferenceRoute, TakesTheLargestAndBreaksTiesDownwards) {
  const std::vector<float> logits = {1, 3, 3, 0};
  const double sum = std::exp(1.0) + 2 * std::exp(3.0) + 1;
  Routed routed = route_one(logits, {.top_k = 3});
  EXPECT_EQ(routed.experts, (std::vector<int>{1, 2, 0}));
  EXPECT_NEAR(routed.weights[0], std::exp(3.0) / sum, 1e-6);
  EXPECT_NEAR(routed.weights[2], std::exp(1.0) / sum, 1e-6);
  routed = route_one(logits, {.top_k = 2, .renormalise = true, .scale = 3.0f});
  EXPECT_NEAR(routed.weights[0], 1.5, 1e-6);
  EXPECT_NEAR(routed.weights[1], 1.5, 1e-6);
}

TEST(ReferenceRoute, SelectionBiasDecidesTheChoiceNotTheWeight) {
  const Routed routed =
      route_one({0, 1, 2}, {.score = ScoreFunction::sigmoid, .top_k = 1}, {1.0f, 0.0f, 0.0f});
  EXPECT_EQ(routed.experts, std::vector<int>{0});
  EXPECT_NEAR(routed.weights[0], 0.5, 1e-6);
}

TEST(ReferenceRoute, GroupLimitedRoutingStaysInTheBestGroups) {
  // Groups {0,1} {2,3} {4,5}: by best expert group 2 wins, by the best two group 1 does.
  const std::vector<float> logits = {0, 0, 2.0f, 1.9f, 2.1f, -9};
  RouterRule rule{.score = ScoreFunction::sigmoid, .top_k = 2, .groups = 3, .groups_kept = 1};
  EXPECT_EQ(route_one(logits, rule).experts, (std::vector<int>{4, 5}));
  rule.group_score = GroupScore::best_two;
  EXPECT_EQ(route_one(logits, rule).experts, (std::vector<int>{2, 3}));
}

TEST(ReferenceRoute, ASmallSumCountsAsTheLeast) {
  const RouterRule rule{
      .score = ScoreFunction::sigmoid, .top_k = 2, .renormalise = true, .least_sum = 2.0f};
  const Routed routed = route_one({0, 0, -9}, rule);  // scores of a half each
  EXPECT_NEAR(routed.weights[0], 0.25, 1e-6);
  EXPECT_NEAR(routed.weights[1], 0.25, 1e-6);
}

// Logits within 2 * jitter of the chosen one, relative to the larger of both, share its softmax.
TEST(ReferenceRoute, SparseMixerSharesAmongNearLogits) {
  RouterRule rule{.score = ScoreFunction::sparse_mixer, .top_k = 2, .jitter = 0.05f};
  Routed routed = route_one({2.0f, 1.9f, 1.0f, -3.0f}, rule);
  EXPECT_EQ(routed.experts, (std::vector<int>{0, 1}));
  EXPECT_NEAR(routed.weights[0], 1.0 / (1.0 + std::exp(-0.1)), 1e-6);
  EXPECT_NEAR(routed.weights[1], 1.0, 1e-6);  // the first choice does not count any more
  rule.jitter = 0.0f;
  routed = route_one({2.0f, 1.9f, 1.0f, -3.0f}, rule);
  EXPECT_EQ(routed.weights, (std::vector<float>{1.0f, 1.0f}));
  rule.jitter = 10.0f;
  routed = route_one({-2.0f, -1.0f, 0.0f}, rule);
  EXPECT_EQ(routed.experts, (std::vector<int>{2, 1}));
  EXPECT_NEAR(routed.weights[0], 1.0 / (1.0 + std::exp(-1.0) + std::exp(-2.0)), 1e-6);
  EXPECT_NEAR(routed.weights[1], 1.0 / (1.0 + std::exp(-1.0)), 1e-6);
}

TEST(ReferenceRoute, SurvivesNan) {
  const Routed routed =
      route_one({kNan, 1, kNan, 2, 3, kNan, 0, 1}, {.top_k = 4, .groups = 2, .groups_kept = 1});
  for (const int expert : routed.experts) EXPECT_TRUE(expert >= 0 && expert < 8);
}

}  // namespace
}  // namespace klotski
