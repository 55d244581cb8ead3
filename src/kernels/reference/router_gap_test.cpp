// How far a router's choice is from another one.

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "kernels/testing.h"

namespace klotski {
namespace {

constexpr float kNone = std::numeric_limits<float>::infinity();

std::vector<float> gaps_of(const std::vector<float>& logits, int64_t tokens, const RouterRule& rule,
                           const std::vector<float>& bias = {}) {
  const auto choices = static_cast<size_t>(tokens * rule.top_k);
  std::vector<ExpertId> experts(choices);
  std::vector<float> weights(choices);
  std::vector<float> gaps(static_cast<size_t>(tokens), -1.0f);
  reference_processor().route(
      {.logits = {logits.data(), tokens, static_cast<int64_t>(logits.size()) / tokens},
       .selection_bias = bias,
       .rule = rule,
       .experts = experts,
       .weights = weights,
       .gaps = gaps});
  return gaps;
}

double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

TEST(RouterGap, IsTheLastChosenScoreOverTheBestThatWasLeft) {
  const std::vector<float> logits = {1, 3, 0, 2, /* second token */ 5, 5, 5, 5};
  const std::vector<float> gaps = gaps_of(logits, 2, {.top_k = 2});
  const double sum = std::exp(1.0) + std::exp(3.0) + 1.0 + std::exp(2.0);
  EXPECT_NEAR(gaps[0], (std::exp(2.0) - std::exp(1.0)) / sum, 1e-6);
  EXPECT_EQ(gaps[1], 0.0f);
}

TEST(RouterGap, IsOfTheScoreThatDecidesNotOfTheWeight) {
  const RouterRule rule{.score = ScoreFunction::sigmoid, .top_k = 1, .scale = 7.0f};
  EXPECT_NEAR(gaps_of({0, 1, 2}, 1, rule, {1.0f, 0.0f, 0.0f})[0], 1.5 - sigmoid(2), 1e-6);
}

TEST(RouterGap, IsInfiniteWhereNothingIsLeft) {
  EXPECT_EQ(gaps_of({1, 2, 3}, 1, {.top_k = 3})[0], kNone);
}

TEST(RouterGap, CountsTheChoiceOfGroupsToo) {
  // Groups {0,1} {2,3} {4,5}. The expert of the second group that comes next cannot be chosen.
  RouterRule rule{.score = ScoreFunction::sigmoid, .top_k = 1, .groups = 3, .groups_kept = 1};
  EXPECT_NEAR(gaps_of({3, 2, 1, 0, 0, 0}, 1, rule)[0], sigmoid(3) - sigmoid(2), 1e-6);
  EXPECT_NEAR(gaps_of({3, -3, 2, 0, 0, 0}, 1, rule)[0], sigmoid(3) - sigmoid(2), 1e-6);
  rule.top_k = 2;  // both experts of the group
  EXPECT_NEAR(gaps_of({3, -3, 2, 0, 0, 0}, 1, rule)[0], sigmoid(3) - sigmoid(2), 1e-6);
  rule.group_score = GroupScore::best_two;
  EXPECT_NEAR(gaps_of({3, 0, 2, 0, 0, 0}, 1, rule)[0], sigmoid(3) - sigmoid(2), 1e-6);
}

TEST(RouterGap, ANanIsNoTie) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_FALSE(gaps_of({nan, nan, nan}, 1, {.top_k = 1})[0] < 1.0f);
}

}  // namespace
}  // namespace klotski
