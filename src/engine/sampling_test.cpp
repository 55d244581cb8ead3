#include "engine/sampling.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>

namespace klotski {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// How often each token is drawn over many seeds, as shares.
std::map<TokenId, double> shares(const std::vector<float>& logits, SamplingOptions options,
                                 std::vector<TokenId> prompt = {}) {
  constexpr int kDraws = 20000;
  std::map<TokenId, double> result;
  for (int i = 0; i < kDraws; ++i) {
    options.seed = static_cast<uint64_t>(i);
    result[Sampler(options, prompt).next(logits).value()] += 1.0 / kDraws;
  }
  return result;
}

TEST(Sampler, GreedyTakesTheLargestAndTheLowerIdOfATie) {
  EXPECT_EQ(Sampler({}, {}).next(std::vector<float>{1, 5, 5, 2}), 1);
}

TEST(Sampler, TemperatureDrawsByTheSoftmax) {
  const std::vector<float> logits = {0.0f, 1.0f, 2.0f};
  const double sum = 1 + std::exp(0.5) + std::exp(1.0);
  const auto drawn = shares(logits, {.temperature = 2.0});
  EXPECT_NEAR(drawn.at(0), 1 / sum, 0.015);
  EXPECT_NEAR(drawn.at(1), std::exp(0.5) / sum, 0.015);
  EXPECT_NEAR(drawn.at(2), std::exp(1.0) / sum, 0.015);
}

TEST(Sampler, TopKKeepsTheMostLikely) {
  const auto drawn = shares({0, 3, 1, 2}, {.temperature = 5.0, .top_k = 2});
  EXPECT_EQ(drawn.size(), 2u);
  EXPECT_TRUE(drawn.contains(1) && drawn.contains(3));
}

TEST(Sampler, TopPKeepsTheSmallestSetThatHoldsTheShare) {
  // Probabilities 0.5, 0.3, 0.15, 0.05.
  const std::vector<float> logits = {std::log(0.15f), std::log(0.5f), std::log(0.05f),
                                     std::log(0.3f)};
  EXPECT_EQ(shares(logits, {.temperature = 1.0, .top_p = 0.45}).size(), 1u);
  const auto two = shares(logits, {.temperature = 1.0, .top_p = 0.79});
  EXPECT_EQ(two.size(), 2u);
  EXPECT_NEAR(two.at(1), 0.5 / 0.8, 0.015);
  EXPECT_EQ(shares(logits, {.temperature = 1.0, .top_p = 0.94}).size(), 3u);
  EXPECT_EQ(shares(logits, {.temperature = 1.0, .top_p = 0.0}).size(), 1u);
}

// Where the share is reached exactly nothing more is taken; of equal logits the lower ids are.
TEST(Sampler, TheEdgesOfTopPAndMinP) {
  const std::vector<float> equal(4, 1.0f);
  const auto half = shares(equal, {.temperature = 1.0, .top_p = 0.5});
  EXPECT_EQ(half.size(), 2u);
  EXPECT_TRUE(half.contains(0) && half.contains(1));
  EXPECT_EQ(shares(equal, {.temperature = 1.0, .top_p = 0.51}).size(), 3u);
  EXPECT_EQ(shares(equal, {.temperature = 1.0, .min_p = 1.0}).size(), 4u);
  const auto two = shares({2, 1, 2, 2}, {.temperature = 1.0, .top_k = 2});
  EXPECT_TRUE(two.contains(0) && two.contains(2) && two.size() == 2);
}

TEST(Sampler, MinPIsRelativeToTheBest) {
  const std::vector<float> logits = {std::log(0.5f), std::log(0.3f), std::log(0.2f)};
  EXPECT_EQ(shares(logits, {.temperature = 1.0, .min_p = 0.5}).size(), 2u);
  EXPECT_EQ(shares(logits, {.temperature = 1.0, .min_p = 0.3}).size(), 3u);
  EXPECT_EQ(shares(logits, {.temperature = 1.0, .min_p = 1.0}).size(), 1u);
}

TEST(Sampler, RepetitionPenaltyCountsPromptAndGenerated) {
  Sampler sampler({.repetition_penalty = 2.0}, std::vector<TokenId>{0});
  const std::vector<float> logits = {3.0f, 2.0f, 1.9f, -1.0f};
  EXPECT_EQ(sampler.next(logits), 1) << "3.0 of the prompt's token became 1.5";
  EXPECT_EQ(sampler.next(logits), 2) << "2.0 became 1.0";
  Sampler negative({.repetition_penalty = 2.0}, std::vector<TokenId>{0});
  EXPECT_EQ(negative.next(std::vector<float>{-1.0f, -1.5f}), 1) << "-1.0 became -2.0";
}

TEST(Sampler, PresenceAndFrequencyCountGeneratedOnly) {
  Sampler presence({.presence_penalty = 0.5}, std::vector<TokenId>{0});
  const std::vector<float> logits = {1.0f, 0.8f};
  EXPECT_EQ(presence.next(logits), 0) << "the prompt does not count";
  EXPECT_EQ(presence.next(logits), 1);
  EXPECT_EQ(presence.next(logits), 0) << "once each: 0.5 against 0.3";
  EXPECT_EQ(presence.next(logits), 0) << "more often does not cost more";
  Sampler frequency({.frequency_penalty = 0.15}, {});
  EXPECT_EQ(frequency.next(logits), 0);
  EXPECT_EQ(frequency.next(logits), 0);
  EXPECT_EQ(frequency.next(logits), 1) << "0.7 against 0.8";
}

TEST(Sampler, SameSeedSameTokensOtherSeedOthers) {
  const std::vector<float> logits(50, 0.0f);
  const auto draw = [&](uint64_t seed) {
    Sampler sampler({.temperature = 1.0, .seed = seed}, {});
    std::vector<TokenId> tokens;
    for (int i = 0; i < 20; ++i) tokens.push_back(*sampler.next(logits));
    return tokens;
  };
  EXPECT_EQ(draw(1), draw(1));
  EXPECT_NE(draw(1), draw(2));
}

TEST(Sampler, NoTokenFromBrokenLogits) {
  for (const double temperature : {0.0, 1.0}) {
    const SamplingOptions options{.temperature = temperature};
    EXPECT_FALSE(Sampler(options, {}).next(std::vector<float>{1, kNan}));
    EXPECT_FALSE(Sampler(options, {}).next(std::vector<float>{1, kInfinity}));
    EXPECT_FALSE(Sampler(options, {}).next(std::vector<float>{-kInfinity, -kInfinity}));
    EXPECT_EQ(Sampler(options, {}).next(std::vector<float>{-kInfinity, 1, -kInfinity}), 1);
  }
}

TEST(Sampler, LogitBiasIsAddedBeforeAllElse) {
  const std::vector<float> logits = {1.0f, 2.0f, 3.0f};
  EXPECT_EQ(Sampler({.logit_bias = {{2, -100.0}}}, {}).next(logits), 1);
  EXPECT_EQ(Sampler({.logit_bias = {{0, 100.0}, {7, 100.0}, {-1, 100.0}}}, {}).next(logits), 0);
  const SamplingOptions chance{.temperature = 1.0, .logit_bias = {{1, 100.0}}, .seed = 3};
  EXPECT_EQ(Sampler(chance, {}).next(logits), 1);
  EXPECT_FALSE(Sampler(chance, {}).takes_most_likely());
  EXPECT_FALSE(Sampler({.logit_bias = {{1, 0.0}}}, {}).takes_most_likely());
}

TEST(Logprobs, AreTheLogarithmsOfTheSoftmaxLikeliestFirst) {
  const std::vector<float> logits = {std::log(0.1f), std::log(0.6f), std::log(0.3f)};
  const PositionLogprobs found = logprobs_of(logits, 0, 2);
  EXPECT_NEAR(found.chosen, std::log(0.1), 1e-6);
  ASSERT_EQ(found.top.size(), 2U);
  EXPECT_EQ(found.top[0].token, 1);
  EXPECT_NEAR(found.top[0].logprob, std::log(0.6), 1e-6);
  EXPECT_EQ(found.top[1].token, 2);
  EXPECT_TRUE(logprobs_of(logits, 1, 0).top.empty());
  EXPECT_EQ(logprobs_of(logits, 1, 20).top.size(), 3U);
}

TEST(Logprobs, OfLargeAndMaskedLogitsAreFinite) {
  const std::vector<float> logits = {5000.0f, 5000.0f, -kInfinity};
  const PositionLogprobs found = logprobs_of(logits, 1, 2);
  EXPECT_NEAR(found.chosen, std::log(0.5), 1e-9);
  EXPECT_EQ(found.top[0].token, 0);  // of a tie the lower id
}

// Where the most likely token is known the logits are not needed, unless chance or penalties count.
TEST(Sampler, TheMostLikelyTokenIsEnoughWithoutChanceAndPenalties) {
  EXPECT_TRUE(Sampler({}, {}).takes_most_likely());
  EXPECT_FALSE(Sampler({.temperature = 0.5}, {}).takes_most_likely());
  EXPECT_FALSE(Sampler({.repetition_penalty = 1.1}, {}).takes_most_likely());
  EXPECT_FALSE(Sampler({.presence_penalty = 0.1}, {}).takes_most_likely());
  EXPECT_FALSE(Sampler({.frequency_penalty = -0.1}, {}).takes_most_likely());
  Sampler greedy({}, {});
  EXPECT_EQ(greedy.next_most_likely(3), 3);
  EXPECT_EQ(greedy.next_most_likely(-1), std::nullopt);
}

}  // namespace
}  // namespace klotski
