#include "experts/predictor.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "experts/correlation_predictor.h"
#include "experts/popularity_predictor.h"
#include "experts/token_predictor.h"

namespace klotski {
namespace {

// Layers 1 and 2 of three are routed: four experts, two for each token.
ModelDescription one_dense_two_routed() {
  ModelDescription model;
  model.family = "test";
  for (const bool routed : {false, true, true}) {
    Layer layer;
    layer.feed_forward.routed = routed;
    layer.feed_forward.experts = routed ? 4 : 1;
    layer.feed_forward.router.top_k = routed ? 2 : 0;
    model.layers.push_back(layer);
  }
  return model;
}

std::vector<ExpertId> experts(std::initializer_list<int32_t> values) {
  std::vector<ExpertId> result;
  for (const int32_t value : values) result.push_back(ExpertId(value));
  return result;
}

// Tokens of as many sequences, each after its prompt.
std::vector<PassToken> decoding(int64_t count) {
  std::vector<PassToken> tokens;
  for (int64_t i = 0; i < count; ++i) {
    tokens.push_back({.sequence = i, .position = 7, .token = 5, .decodes = true});
  }
  return tokens;
}

std::vector<ExpertId> likeliest(const ExpertPredictor& predictor, int64_t layer, int64_t count) {
  std::vector<ExpertId> result;
  double last = 1.0;
  for (const ExpectedExpert& one : predictor.predict(LayerId(layer), count)) {
    EXPECT_LE(one.share, last) << "likeliest first";
    EXPECT_GT(one.share, 0.0);
    last = one.share;
    result.push_back(one.expert);
  }
  return result;
}

class Predictor : public ::testing::Test {
 protected:
  // A pass of one token that chooses these in every routed layer.
  static void pass(ExpertPredictor& predictor, std::initializer_list<int32_t> choices) {
    predictor.begin_pass(decoding(1));
    for (const int64_t layer : {1, 2}) predictor.observe(LayerId(layer), experts(choices));
  }

  ModelDescription model_ = one_dense_two_routed();
  CorrelationTable table_{routing_shape(model_)};
  CorrelationPredictor correlation_{table_};
};

TEST_F(Predictor, TheShapeNamesTheRoutedLayers) {
  const RoutingTraceShape shape = routing_shape(model_);
  ASSERT_EQ(shape.layers.size(), 2u);
  EXPECT_EQ(shape.layers[0], (RoutedLayer{LayerId(1), 4, 2}));
}

// Token 5 chose experts 1 and 2 of both layers, once: with popularity as four tokens more, each has
// (1 + 4 x 1) / (1 + 4). Token 6 was not seen: popularity alone, which is 1 as well. After token 6
// chose 1 and 3, expert 1 has the popularity 1, experts 2 and 3 have 1/2: for token 5 expert 2 has
// (1 + 4/2) / 5 = 0.6 and expert 3 (4/2) / 5 = 0.4, for token 6 the other way round.
TEST_F(Predictor, ANewSequenceIsExpectedToUseTheExpertsOfItsTokens) {
  TokenPredictor predictor(routing_shape(model_));
  EXPECT_TRUE(predictor.expected_shares(std::vector<TokenId>{5}).empty()) << "nothing was learnt";
  pass(predictor, {1, 2});
  predictor.begin_pass({{.sequence = 0, .position = 0, .token = 6}});
  for (const int64_t layer : {1, 2}) predictor.observe(LayerId(layer), experts({1, 3}));
  const RequestShares five = predictor.expected_shares(std::vector<TokenId>{5});
  const RequestShares both = predictor.expected_shares(std::vector<TokenId>{5, 6, 5, 5});
  const RequestShares expected_five = {0, 1, 0.6f, 0.4f, 0, 1, 0.6f, 0.4f};
  const RequestShares expected_both = {0, 1, 0.55f, 0.45f, 0, 1, 0.55f, 0.45f};
  ASSERT_EQ(five.size(), 8u);
  ASSERT_EQ(both.size(), 8u);
  for (size_t e = 0; e < 8; ++e) {
    EXPECT_NEAR(five[e], expected_five[e], 1e-6) << e;
    EXPECT_NEAR(both[e], expected_both[e], 1e-6) << e;
  }
  EXPECT_TRUE(correlation_.expected_shares(std::vector<TokenId>{5}).empty()) << "needs gates";
}

// The only feed-forward part of a dense layer is always needed, whatever was seen.
TEST_F(Predictor, ADenseLayerNeedsItsOnlyExpert) {
  const PopularityPredictor popularity(model_, {{1.0}, {0, 0, 1, 0}, {0, 0, 1, 0}});
  for (const ExpertPredictor* predictor :
       std::initializer_list<const ExpertPredictor*>{&correlation_, &popularity}) {
    EXPECT_EQ(predictor->predict(LayerId(0), 2), (std::vector<ExpectedExpert>{{ExpertId(0), 1.0}}));
  }
}

TEST_F(Predictor, NothingIsPredictedBeforeAnythingWasObserved) {
  correlation_.begin_pass(decoding(1));
  EXPECT_TRUE(correlation_.predict(LayerId(1), 2).empty());
}

TEST_F(Predictor, WhatWasChosenIsPredicted) {
  pass(correlation_, {1, 3});
  correlation_.begin_pass(decoding(1));
  EXPECT_EQ(likeliest(correlation_, 1, 2), experts({1, 3}));
  EXPECT_EQ(likeliest(correlation_, 1, 1), experts({1}));
  EXPECT_EQ(likeliest(correlation_, 1, 60'000), experts({1, 3}));
  EXPECT_DOUBLE_EQ(correlation_.predict(LayerId(1), 1)[0].share, 0.5);
}

// Asking teaches nothing: the answer stays the same however often it is asked.
TEST_F(Predictor, AskingChangesNothing) {
  pass(correlation_, {1, 3});
  pass(correlation_, {1, 2});
  correlation_.begin_pass(decoding(1));
  const std::vector<ExpectedExpert> first = correlation_.predict(LayerId(1), 4);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(correlation_.predict(LayerId(1), 4), first);
  EXPECT_EQ(table_.popularity(0)[1], 2u);
}

TEST_F(Predictor, LayersAreObservedInTheirOrder) {
  correlation_.begin_pass(decoding(1));
  EXPECT_THROW(correlation_.observe(LayerId(2), experts({0, 1})), Error);
  EXPECT_THROW(correlation_.observe(LayerId(0), experts({0, 1})), Error);
  correlation_.observe(LayerId(1), experts({0, 1}));
  EXPECT_THROW(correlation_.observe(LayerId(1), experts({0, 1})), Error);
  EXPECT_EQ(correlation_.choices().known_layers(), 1u);
}

TEST_F(Predictor, APassGivenUpHalfWayDoesNotSpoilTheNext) {
  correlation_.begin_pass(decoding(2));
  correlation_.observe(LayerId(1), experts({1, 3, 1, 3}));
  pass(correlation_, {1, 3});  // begins with the first layer again
  EXPECT_EQ(correlation_.choices().known_layers(), 2u);
  EXPECT_EQ(likeliest(correlation_, 2, 2), experts({1, 3}));
}

// Shares 0.1, 0.2, 0.3, 0.4 of two choices a token: the token chooses the experts with probability
// 0.2, 0.4, 0.6, 0.8; one of two tokens chooses expert 1 with 1 - 0.6 * 0.6 = 0.64.
TEST_F(Predictor, AGroupsProbabilityIsThatOfAnyToken) {
  PopularityPredictor popularity(model_, {{1.0}, {0.1, 0.2, 0.3, 0.4}, {0.7, 0.1, 0.1, 0.1}});
  popularity.begin_pass(decoding(2));
  const auto expect = [&](const std::vector<double>& found, std::vector<double> wanted) {
    ASSERT_EQ(found.size(), wanted.size());
    for (size_t e = 0; e < wanted.size(); ++e) EXPECT_NEAR(found[e], wanted[e], 1e-12) << e;
  };
  expect(popularity.probabilities(LayerId(1), 1, 1), {0.2, 0.4, 0.6, 0.8});
  expect(popularity.group_probabilities(LayerId(1)), {0.36, 0.64, 0.84, 0.96});
  expect(popularity.probabilities(LayerId(2), 0, 1), {1.0, 0.2, 0.2, 0.2});
  expect(popularity.group_probabilities(LayerId(0)), {1.0});
}

TEST_F(Predictor, ComingLayersAreRefinedByEveryGate) {
  pass(correlation_, {1, 3});
  pass(correlation_, {0, 2});
  correlation_.begin_pass(decoding(1));
  std::vector<LayerProbabilities> coming = correlation_.coming(5);
  ASSERT_EQ(coming.size(), 2u);
  EXPECT_EQ(coming[0].layer, LayerId(1));
  EXPECT_EQ(coming[1].probability, (std::vector<double>{0.5, 0.5, 0.5, 0.5}));
  EXPECT_EQ(correlation_.coming(1).size(), 1u);
  correlation_.observe(LayerId(1), experts({3, 1}));
  coming = correlation_.coming(5);
  ASSERT_EQ(coming.size(), 1u);
  EXPECT_EQ(coming[0].layer, LayerId(2));
  EXPECT_EQ(coming[0].probability, (std::vector<double>{0, 1, 0, 1})) << "what followed before";
  EXPECT_EQ(correlation_.group_probabilities(LayerId(1)), (std::vector<double>{0, 1, 0, 1}))
      << "an observed layer is certain";
  correlation_.observe(LayerId(2), experts({0, 1}));
  EXPECT_TRUE(correlation_.coming(5).empty());
}

// A predictor that says nothing about groups: sums of its tokens' estimates decide.
class ByToken : public ExpertPredictor {
 public:
  using ExpertPredictor::ExpertPredictor;

 private:
  void learn(size_t) override {}
  std::vector<double> estimate(size_t, int64_t token) const override {
    return tokens()[static_cast<size_t>(token)].token == 0 ? std::vector<double>{0.5, 0.25, 0, 0}
                                                           : std::vector<double>{0, 0.25, 1, 0};
  }
};

TEST_F(Predictor, APredictionOfAGroupSumsItsTokens) {
  ByToken predictor(routing_shape(model_));
  predictor.begin_pass({{.token = 0}, {.token = 1}});
  EXPECT_EQ(
      predictor.predict(LayerId(1), 9),
      (std::vector<ExpectedExpert>{{ExpertId(2), 0.5}, {ExpertId(0), 0.25}, {ExpertId(1), 0.25}}));
  EXPECT_EQ(likeliest(predictor, 2, 2), experts({2, 0}));
}

TEST_F(Predictor, ThePopularAreThoseMostChosen) {
  PopularityPredictor popularity(model_, {{1.0}, {0.1, 0.4, 0.1, 0.4}, {0.4, 0.3, 0.2, 0.1}});
  popularity.begin_pass(decoding(1));
  EXPECT_EQ(likeliest(popularity, 1, 1), experts({1}));
  EXPECT_EQ(likeliest(popularity, 1, 3), experts({1, 3, 0})) << "equals as they are numbered";
  EXPECT_EQ(likeliest(popularity, 2, 9), experts({0, 1, 2, 3}));
  popularity.observe(LayerId(1), experts({2, 0}));
  EXPECT_EQ(likeliest(popularity, 1, 1), experts({1})) << "what a pass chooses does not count";
  EXPECT_THROW(PopularityPredictor(model_, {{1.0}}), Error);
}

// A pass may begin after some routed layers, as a decoder's does: these count as known.
TEST(PredictorPasses, MayBeginAtALaterLayer) {
  CorrelationTable table(routing_shape(one_dense_two_routed()), 1);
  CorrelationPredictor predictor(table);
  predictor.begin_pass(decoding(1), LayerId(2));
  EXPECT_EQ(predictor.choices().known_layers(), 1u);
  predictor.observe(LayerId(2), experts({3, 1}));
  EXPECT_EQ(predictor.choices().known_layers(), 2u);
  predictor.begin_pass(decoding(1), LayerId(2));
  const std::vector<ExpectedExpert> expected = predictor.predict(LayerId(2), 2);
  ASSERT_EQ(expected.size(), 2u);
  EXPECT_EQ(expected[0].expert, ExpertId(1));
  EXPECT_EQ(expected[1].expert, ExpertId(3));
}

}  // namespace
}  // namespace klotski
