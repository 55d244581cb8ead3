// The rules for bf16, each shown to pass and to fail.

#include <gtest/gtest.h>

#include <vector>

#include "engine/verify.h"

namespace klotski {
namespace {

// Two prompts of 10 positions and 50 continued, by two routed layers of 2 experts a token; the run
// in bf16 equals the exact one, until a test changes it.
class VerifyBf16 : public ::testing::Test {
 protected:
  static constexpr size_t kPrompt = 10;
  static constexpr size_t kGreedy = 51;
  static constexpr size_t kLast = kPrompt - 1;  // the last position of the prompt

  VerifyBf16() {
    for (size_t i = 0; i < 2; ++i) {
      prompts_.push_back({.input = std::vector<TokenId>(kPrompt, 1),
                          .last_logits = {1, 2, 3},
                          .argmax_all = std::vector<TokenId>(kPrompt, 1),
                          .greedy = std::vector<TokenId>(kGreedy, 1),
                          .margins = std::vector<double>(kGreedy, 0.5)});
      const size_t positions = kPrompt + kGreedy - 1;
      ObservedPrompt& exact = exact_.emplace_back();
      exact.best.assign(positions, 1);
      exact.margins.assign(positions, 0.5);
      exact.logit_error = 1e-7;
      for (size_t l = 0; l < 2; ++l) {
        ObservedLayer layer{.choices = 2, .experts = {}, .weights = {}, .gaps = {}};
        for (size_t p = 0; p < positions; ++p) {
          layer.experts.insert(layer.experts.end(), {ExpertId(2), ExpertId(5)});
          layer.weights.insert(layer.weights.end(), {0.6f, 0.4f});
          layer.gaps.push_back(0.1f);
        }
        exact.layers.push_back(layer);
      }
    }
    run_ = exact_;
    for (ObservedPrompt& prompt : run_) prompt.logit_error = 1e-2;
  }

  VerifyReport report() const {
    return verify(prompts_, exact_, run_, verify_rules(Precision::bf16));
  }
  bool passed() const { return report().passed; }
  // Puts another expert at a position, with scores `gap` apart.
  void reroute(size_t prompt, size_t layer, size_t position, float gap) {
    run_[prompt].layers[layer].experts[position * 2] = ExpertId(1);
    exact_[prompt].layers[layer].gaps[position] = gap;
  }
  void other_token(size_t prompt, size_t position) { run_[prompt].best[position] = 0; }

  std::vector<ReferencePrompt> prompts_;
  std::vector<ObservedPrompt> exact_;
  std::vector<ObservedPrompt> run_;
};

// Some routers give the same experts clearly other weights where a logit crosses a bound.
TEST_F(VerifyBf16, OtherWeightsAreATieWhereAGapIsSmall) {
  other_token(1, 7);
  run_[1].layers[0].weights[7 * 2] = 0.62f;
  exact_[1].layers[0].gaps[7] = 1e-3f;
  EXPECT_FALSE(passed()) << "nearly equal weights explain nothing";
  run_[1].layers[0].weights[7 * 2] = 1.0f;
  EXPECT_EQ(report().prompts[1].ties, 1);
  exact_[1].layers[0].gaps[7] = 0.5f;
  EXPECT_FALSE(passed()) << "far from any bound";
}

TEST_F(VerifyBf16, AcceptsTheTruth) {
  const VerifyReport found = report();
  EXPECT_TRUE(found.passed);
  EXPECT_EQ(found.clear, static_cast<int64_t>(2 * (kPrompt + kGreedy)));
  EXPECT_EQ(found.clear_agreed, found.clear);
  EXPECT_EQ(found.share(), 1.0);
}

TEST_F(VerifyBf16, NoticesAWrongTokenWithoutATie) {
  other_token(1, 30);
  const VerifyReport found = report();
  EXPECT_FALSE(found.passed);
  EXPECT_TRUE(found.prompts[0].passed);
  EXPECT_EQ(found.prompts[1].wrong_tokens, 1);
  EXPECT_GT(found.share(), 0.98);  // not too few: unexplained
}

TEST_F(VerifyBf16, NoticesAWrongTokenInsideThePrompt) {
  other_token(0, 3);
  EXPECT_FALSE(passed());
  exact_[0].margins[3] = 0.05;
  EXPECT_TRUE(passed());
}

TEST_F(VerifyBf16, ForgivesATokenWithoutAClearMargin) {
  other_token(1, kLast + 20);
  prompts_[1].margins[20] = 0.05;
  const VerifyReport found = report();
  EXPECT_TRUE(found.passed);
  EXPECT_EQ(found.clear, static_cast<int64_t>(2 * (kPrompt + kGreedy)) - 1);
  prompts_[1].margins[20] = 0.0501;
  EXPECT_FALSE(passed());
}

TEST_F(VerifyBf16, TakesMissingMarginsFromTheExactRun) {
  prompts_[1].margins.clear();
  other_token(1, kLast + 20);
  EXPECT_FALSE(passed());
  exact_[1].margins[kLast + 20] = 0.01;
  EXPECT_TRUE(passed());
}

TEST_F(VerifyBf16, ForgivesATokenWhereTiedExpertsChangedPlaces) {
  other_token(1, 30);
  reroute(1, 1, 30, 0.019f);
  const VerifyReport found = report();
  EXPECT_TRUE(found.passed);
  EXPECT_EQ(found.prompts[1].ties, 1);
  EXPECT_EQ(found.prompts[1].wrong_tokens, 0);
}

TEST_F(VerifyBf16, ExpertsThatWereNotTiedExplainNothing) {
  other_token(1, 30);
  reroute(1, 1, 30, 0.021f);
  EXPECT_FALSE(passed());
}

TEST_F(VerifyBf16, ATieThatWasDecidedTheSameWayExplainsNothing) {
  other_token(1, 30);
  exact_[1].layers[1].gaps[30] = 0.001f;
  EXPECT_FALSE(passed());
}

TEST_F(VerifyBf16, TheFirstLayerThatDiffersMustBeTheTie) {
  other_token(1, 30);
  reroute(1, 0, 30, 0.019f);
  reroute(1, 1, 30, 0.5f);  // follows from it
  EXPECT_TRUE(passed());
  exact_[1].layers[0].gaps[30] = 0.5f;
  exact_[1].layers[1].gaps[30] = 0.019f;
  EXPECT_FALSE(passed());
}

TEST_F(VerifyBf16, ATieBeforeExplainsWhatAttentionSawOfIt) {
  other_token(1, 30);
  reroute(1, 0, 12, 0.001f);
  reroute(1, 1, 30, 0.5f);  // follows from it
  EXPECT_TRUE(passed());
  reroute(1, 0, 13, 0.5f);  // follows from nothing
  EXPECT_FALSE(passed());
}

TEST_F(VerifyBf16, ATieLaterOrInAnotherPromptExplainsNothing) {
  other_token(1, 30);
  reroute(1, 0, 31, 0.001f);
  reroute(0, 0, 30, 0.001f);
  EXPECT_FALSE(passed());
}

TEST_F(VerifyBf16, TooManyTiesFail) {
  const auto tie = [&](size_t position) {
    other_token(0, position);
    reroute(0, 0, position, 0.001f);
  };
  tie(20);
  tie(21);
  EXPECT_TRUE(passed());  // 120 of 122
  tie(22);
  const VerifyReport found = report();
  EXPECT_FALSE(found.passed);  // 119 of 122: 97.5 %
  EXPECT_LT(found.share(), 0.98);
  EXPECT_TRUE(found.prompts[0].passed);  // each is explained
}

TEST_F(VerifyBf16, NoticesWrongLogitsWhereTheRoutingAgrees) {
  run_[0].logit_error = 0.019;
  EXPECT_TRUE(passed());
  run_[0].logit_error = 0.03;
  const VerifyReport found = report();
  EXPECT_FALSE(found.passed);
  EXPECT_FALSE(found.prompts[0].passed);
  EXPECT_TRUE(found.prompts[1].passed);
}

TEST_F(VerifyBf16, LogitsAreNotJudgedWhereTiedExpertsChangedPlaces) {
  run_[0].logit_error = 0.03;
  reroute(0, 1, kLast, 0.001f);
  const VerifyReport found = report();
  EXPECT_TRUE(found.passed);
  EXPECT_TRUE(found.prompts[0].routing_tie);
  exact_[0].layers[1].gaps[kLast] = 0.5f;
  EXPECT_FALSE(passed());
  reroute(0, 0, kLast - 1, 0.001f);
  EXPECT_TRUE(passed());
}

TEST_F(VerifyBf16, ATieAfterThePromptLeavesItsLogitsToBeJudged) {
  run_[0].logit_error = 0.03;
  reroute(0, 0, kLast + 1, 0.001f);
  EXPECT_FALSE(passed());
}

}  // namespace
}  // namespace klotski
