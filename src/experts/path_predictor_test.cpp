#include "experts/path_predictor.h"

#include <gtest/gtest.h>

#include "base/noise.h"

namespace klotski {
namespace {

class PathPredictorTest : public testing::Test {
 protected:
  PathPredictorTest()
      : network_({.routing = {"predicted", {{LayerId(1), 5, 2}, {LayerId(3), 3, 1}}},
                  .width = 8,
                  .heads = 2,
                  .inner = 8,
                  .chunk = 3,
                  .known_tokens = {1, 2, 3, 4, 5}}) {
    for (neural::Parameter* parameter : network_.parameters()) {
      const uint64_t key = noise_key(1, parameter->name);
      for (size_t i = 0; i < parameter->value.values.size(); ++i) {
        parameter->value.values[i] = static_cast<float>(0.5 * noise(key, i) / noise_deviation());
      }
    }
  }

  // The network's probabilities for the last token of a sequence, in the second routed layer.
  std::vector<double> of_sequence(const std::vector<TokenId>& tokens) {
    PathState state;
    const neural::Matrix all = network_.extend(state, tokens);
    const float* last = all.row(all.rows - 1) + 5;
    return {last, last + 3};
  }

  void expect_near(const std::vector<double>& found, const std::vector<double>& expected) {
    ASSERT_EQ(found.size(), expected.size());
    for (size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-6);
  }

  PathNetwork network_;
};

TEST_F(PathPredictorTest, SequencesOfAPassArePredictedEachFromItsOwnTokens) {
  PathPredictor predictor(network_);
  predictor.begin_pass({{7, 0, 1}, {7, 1, 2}, {8, 0, 5}, {8, 1, 4}, {8, 2, 3}, {8, 3, 2}});
  expect_near(predictor.probabilities(LayerId(3), 1, 1), of_sequence({1, 2}));
  expect_near(predictor.probabilities(LayerId(3), 5, 1), of_sequence({5, 4, 3, 2}));
  predictor.begin_pass({{8, 4, 1, true}, {7, 2, 3, true}});
  expect_near(predictor.probabilities(LayerId(3), 0, 1), of_sequence({5, 4, 3, 2, 1}));
  expect_near(predictor.probabilities(LayerId(3), 1, 1), of_sequence({1, 2, 3}));
}

// The mean over the tokens, whatever pass is at hand.
TEST_F(PathPredictorTest, ANewSequenceIsPredictedFromItsTokens) {
  PathPredictor predictor(network_);
  predictor.begin_pass({{7, 0, 1}, {7, 1, 2}});
  const RequestShares shares = predictor.expected_shares(std::vector<TokenId>{3, 4});
  ASSERT_EQ(shares.size(), 8u);
  const std::vector<double> first = of_sequence({3});
  const std::vector<double> second = of_sequence({3, 4});
  for (size_t e = 0; e < 3; ++e) EXPECT_NEAR(shares[5 + e], (first[e] + second[e]) / 2, 1e-6);
  expect_near(predictor.probabilities(LayerId(3), 1, 1), of_sequence({1, 2}));
}

TEST_F(PathPredictorTest, TheNextPassIsNotPredictedFromTokensOfThisOne) {
  PathPredictor predictor(network_);
  predictor.begin_pass({{7, 0, 1}});
  EXPECT_EQ(predictor.predict(LayerId(1), 2).size(), 2u);
  predictor.observe(LayerId(1), std::vector{ExpertId(0), ExpertId(3)});
  EXPECT_TRUE(predictor.predict(LayerId(1), 2).empty());
  EXPECT_EQ(predictor.predict(LayerId(3), 1).size(), 1u);
}

TEST_F(PathPredictorTest, WeightsThatOverflowGiveNumbers) {
  for (neural::Parameter* parameter : network_.parameters()) {
    for (float& value : parameter->value.values) value = 3e38f;
  }
  PathPredictor predictor(network_);
  predictor.begin_pass({{7, 0, 1}, {7, 1, 2}});
  for (const double probability : predictor.group_probabilities(LayerId(1))) {
    EXPECT_GE(probability, 0.0);
    EXPECT_LE(probability, 1.0);
  }
}

TEST_F(PathPredictorTest, APassThatIsTriedAgainIsPredictedTheSame) {
  PathPredictor predictor(network_);
  predictor.begin_pass({{7, 0, 1}, {7, 1, 2}});
  for (const TokenId token : {3, 4, 3}) {  // the last of the three is the one that counts
    predictor.begin_pass({{7, 2, token, true}});
    expect_near(predictor.probabilities(LayerId(3), 0, 1), of_sequence({1, 2, token}));
  }
  predictor.begin_pass({{7, 3, 5, true}});
  expect_near(predictor.probabilities(LayerId(3), 0, 1), of_sequence({1, 2, 3, 5}));
}

TEST_F(PathPredictorTest, AnUnknownPastCountsAsABeginning) {
  PathPredictor predictor(network_);
  predictor.begin_pass({{7, 9, 4, true}});
  expect_near(predictor.probabilities(LayerId(3), 0, 1), of_sequence({4}));
  predictor.begin_pass({{7, 10, 5, true}});
  expect_near(predictor.probabilities(LayerId(3), 0, 1), of_sequence({4, 5}));
  predictor.end_sequence(7);
  predictor.begin_pass({{7, 11, 2, true}});
  expect_near(predictor.probabilities(LayerId(3), 0, 1), of_sequence({2}));
}

TEST_F(PathPredictorTest, AllLayersArePredictedBeforeTheFirstGate) {
  PathPredictor predictor(network_);
  predictor.begin_pass({{7, 0, 1}});
  const auto coming = predictor.coming(10);
  ASSERT_EQ(coming.size(), 2u);
  EXPECT_EQ(coming[0].probability.size(), 5u);
  expect_near(coming[1].probability, of_sequence({1}));
  const std::vector<ExpertId> chosen = {ExpertId(4), ExpertId(0)};
  predictor.observe(LayerId(1), chosen);
  EXPECT_EQ(predictor.coming(10).size(), 1u);
}

}  // namespace
}  // namespace klotski
