// Random routings and times: the expected numbers of experts, and their consequences.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <random>
#include <vector>

#include "planner/inequalities.h"

namespace klotski {
namespace {

// Zipf's law over 16 experts, not in order.
std::vector<double> skewed_weights(double skew) {
  std::vector<double> weights(16);
  for (size_t i = 0; i < weights.size(); ++i) {
    weights[(i * 7) % 16] = std::pow(static_cast<double>(i + 1), -skew);
  }
  return weights;
}

// A token's choice of this many different experts, each next one by weight among those left.
std::vector<size_t> draw(std::vector<double> weights, int64_t experts_per_token,
                         std::mt19937& random) {
  std::vector<size_t> chosen;
  for (int64_t i = 0; i < experts_per_token; ++i) {
    chosen.push_back(std::discrete_distribution<size_t>(weights.begin(), weights.end())(random));
    weights[chosen.back()] = 0;
  }
  return chosen;
}

// Experts beyond the hot ones that a group of this many tokens is expected to choose: the wait of
// the last inequality, where an expert takes a second to come and all else no time.
double expected_queue(const ExpertChoices& choices, int64_t tokens) {
  BlockSeconds seconds{.expert_transfer = 1};
  seconds.expert_compute = [](double) { return 0.0; };
  return inequalities(seconds, choices, 1, tokens).back().right_seconds -
         static_cast<double>(choices.hot_experts);
}

double expected_activated(ExpertChoices choices, int64_t tokens) {
  choices.hot_experts = 0;
  return expected_queue(choices, tokens);
}

TEST(ExpectedExperts, AgreeWithRandomDraws) {
  std::mt19937 random(11);
  for (const int64_t experts_per_token : {1, 2, 4}) {
    for (const double skew : {0.0, 1.0, 1.5}) {
      ExpertChoices choices{std::vector<double>(16), experts_per_token, 2};
      const std::vector<double> weights = skewed_weights(skew);
      constexpr int kPopulation = 20000;
      std::vector<std::vector<size_t>> tokens;
      for (int i = 0; i < kPopulation; ++i) {
        tokens.push_back(draw(weights, experts_per_token, random));
        for (const size_t expert : tokens.back()) {
          choices.popularity[expert] += 1.0 / static_cast<double>(kPopulation * experts_per_token);
        }
      }
      std::vector<double> sorted = choices.popularity;
      std::sort(sorted.begin(), sorted.end());
      const double hottest = sorted[sorted.size() - 2];  // shares of the hot are at least this
      for (const int64_t group : {1, 3, 10, 40}) {
        constexpr int kDraws = 10000;
        double activated = 0, queue = 0;
        for (int i = 0; i < kDraws; ++i) {
          std::vector<bool> seen(16);
          for (int64_t t = 0; t < group; ++t) {
            for (const size_t expert : tokens[random() % kPopulation]) seen[expert] = true;
          }
          for (size_t expert = 0; expert < 16; ++expert) {
            if (!seen[expert]) continue;
            activated += 1.0 / kDraws;
            if (choices.popularity[expert] < hottest) queue += 1.0 / kDraws;
          }
        }
        EXPECT_NEAR(expected_activated(choices, group), activated, 0.02 * activated);
        EXPECT_NEAR(expected_queue(choices, group), queue, 0.02 * queue);
      }
    }
  }
}

TEST(ExpectedExperts, Bounds) {
  ExpertChoices choices{
      .popularity = {0.15, 0.35, 0.35, 0.15}, .experts_per_token = 2, .hot_experts = 2};
  EXPECT_NEAR(expected_activated(choices, 1), 2, 1e-12);  // a token activates its own choices
  EXPECT_NEAR(expected_queue(choices, 1), 0.6, 1e-12);
  EXPECT_NEAR(expected_activated(choices, 100000), 4, 1e-12);
  EXPECT_NEAR(expected_queue(choices, 100000), 2, 1e-12);
  choices.popularity = {0.5, 0.5, 0, 0};  // every token chooses both
  EXPECT_EQ(expected_activated(choices, 1), 2);
  EXPECT_EQ(expected_queue(choices, 5), 0);
  choices.popularity = {1 - 1e-9, 1e-9, 0, 0};  // 1 - (1 - p)^t keeps its digits
  choices.experts_per_token = 1;
  choices.hot_experts = 1;
  EXPECT_NEAR(expected_queue(choices, 10), 1e-8, 1e-15);
}

// Sixteen equal experts, all cold, of which a token chooses one.
ExpertChoices sixteen_cold() { return {std::vector<double>(16, 1.0 / 16), 1, 0}; }

TEST(Inequalities, NoTokenIsLostAmongExpertsThatAreRarelyActivated) {
  BlockSeconds seconds;
  seconds.expert_compute = [](double tokens) { return tokens; };
  for (const int64_t n : {1, 3, 100}) {
    const Inequality last = inequalities(seconds, sixteen_cold(), n, 1).back();
    EXPECT_NEAR(last.left_seconds, static_cast<double>(n), 1e-9);
  }
}

TEST(Inequalities, ALongerBubbleSharedByMoreMicroBatchesIsBetter) {
  BlockSeconds seconds{.attention_compute = 0.01, .expert_transfer = 1};
  seconds.expert_compute = [](double) { return 0.1; };
  const GroupChoice choice = smallest_group(seconds, sixteen_cold(), 20, 1);
  EXPECT_FALSE(choice.without_bubbles());
  EXPECT_EQ(choice.micro_batches, 20);
  EXPECT_LT(tightest(choice.inequalities).slack_seconds(),
            tightest(inequalities(seconds, sixteen_cold(), 1, 1)).slack_seconds());
}

TEST(Inequalities, WhereASmallerGroupHoldsALargerOneDoes) {
  // Although more tokens activate more experts; the experts take a fixed time and one per token.
  std::mt19937 random(5);
  std::uniform_real_distribution<double> any(0.01, 2);
  int changes = 0;
  for (int i = 0; i < 300; ++i) {
    ExpertChoices choices{std::vector<double>(16), 1, i % 5};
    for (double& share : choices.popularity) share = std::pow(any(random), 3);
    const double sum = std::accumulate(choices.popularity.begin(), choices.popularity.end(), 0.0);
    for (double& share : choices.popularity) share /= sum;
    const double fixed = any(random), per_token = any(random) / 10;
    const BlockSeconds seconds{
        .attention_compute = any(random),
        .gate_compute = any(random) / 10,
        .attention_transfer = any(random),
        .gate_transfer = any(random) / 10,
        .expert_transfer = any(random),
        .expert_compute = [fixed, per_token](double tokens) { return fixed + per_token * tokens; }};
    bool held = false;
    for (int64_t n = 1; n <= 40; ++n) {
      const bool holds = tightest(inequalities(seconds, choices, n, 1 + i % 7)).holds();
      EXPECT_TRUE(holds || !held) << n;
      if (holds && !held && n > 1) ++changes;
      held = holds;
    }
  }
  EXPECT_GT(changes, 100);
}

}  // namespace
}  // namespace klotski
