#include "engine/text_pass.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/testing.h"
#include "engine/testing/pipeline_runs.h"

namespace klotski {
namespace {

// -ln of the probability of each token of a text but the first, from logits computed one token at a
// time.
double score_by_single_tokens(const std::vector<TokenId>& text, const Logits& logits) {
  double score = 0.0;
  for (size_t at = 0; at + 1 < text.size(); ++at) {
    double sum = 0.0;
    for (const float logit : logits[at]) sum += std::exp(static_cast<double>(logit));
    score += std::log(sum) - static_cast<double>(logits[at][static_cast<size_t>(text[at + 1])]);
  }
  return score;
}

class ScoreTextsTest : public ::testing::Test {
 protected:
  ScoreTextsTest() : model_(test_model("qwen3_moe")) {
    std::mt19937_64 random(3);
    // Longer than the rows whose logits are kept together, a single token, and nothing to score.
    for (const size_t length : {150u, 5u, 1u, 64u, 2u}) {
      std::vector<TokenId>& text = texts_.emplace_back();
      while (text.size() < length) {
        text.push_back(
            static_cast<TokenId>(random() % static_cast<uint64_t>(model_.description.vocabulary)));
      }
    }
  }
  TextScore score(std::span<const std::vector<TokenId>> texts) const {
    PreparedModel prepared = model_.prepare({}, score_workload(texts));
    return score_texts(prepared.pipeline(), texts);
  }

  TestModel model_;
  std::vector<std::vector<TokenId>> texts_;
};

TEST_F(ScoreTextsTest, EveryTokenButTheFirstIsScoredByThoseBeforeIt) {
  const TextScore found = score(texts_);
  EXPECT_EQ(found.tokens, 149 + 4 + 0 + 63 + 1);
  double expected = 0.0;
  const Texts one_by_one{texts_, std::vector<int64_t>(texts_.size(), 1)};
  const std::vector<Logits> logits = run_resident(model_, one_by_one);
  for (size_t i = 0; i < texts_.size(); ++i) {
    expected += score_by_single_tokens(texts_[i], logits[i]);
  }
  EXPECT_NEAR(found.negative_log_likelihood, expected, 2e-3 * expected) << "inputs are bf16";
  EXPECT_DOUBLE_EQ(found.perplexity(),
                   std::exp(found.negative_log_likelihood / static_cast<double>(found.tokens)));
}

TEST_F(ScoreTextsTest, TextsAloneScoreAsTheyDoTogether) {
  const TextScore together = score(texts_);
  TextScore alone;
  for (const std::vector<TokenId>& text : texts_) {
    const TextScore one = score(std::span(&text, 1));
    alone.tokens += one.tokens;
    alone.negative_log_likelihood += one.negative_log_likelihood;
  }
  EXPECT_EQ(alone.tokens, together.tokens);
  EXPECT_EQ(alone.negative_log_likelihood, together.negative_log_likelihood);
}

TEST_F(ScoreTextsTest, TokensOutsideTheVocabularyAreRefused) {
  for (const int64_t token : {int64_t{-1}, model_.description.vocabulary}) {
    texts_.back().back() = static_cast<TokenId>(token);
    EXPECT_NE(refusal([&] { score(texts_); }).find("outside the vocabulary"), std::string::npos);
  }
}

TEST_F(ScoreTextsTest, ProgressEndsWithAllTokens) {
  PreparedModel prepared = model_.prepare({}, score_workload(texts_));
  uint64_t last = 0;
  score_texts(prepared.pipeline(), texts_, [&](uint64_t done, uint64_t total) {
    EXPECT_GT(done, last);
    EXPECT_EQ(total, 222u);
    last = done;
  });
  EXPECT_EQ(last, 222u);
}

}  // namespace
}  // namespace klotski
