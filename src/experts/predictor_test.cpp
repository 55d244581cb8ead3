#include "experts/predictor.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "experts/correlation_predictor.h"
#include "experts/popularity_predictor.h"

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
    predictor.begin_pass(1);
    for (const int64_t layer : {1, 2}) predictor.observe(LayerId(layer), experts(choices));
  }

  ModelDescription model_ = one_dense_two_routed();
  CorrelationTable table_{routing_shape(model_)};
  CorrelationPredictor correlation_{model_, table_};
};

TEST_F(Predictor, TheShapeNamesTheRoutedLayers) {
  const RoutingTraceShape shape = routing_shape(model_);
  ASSERT_EQ(shape.layers.size(), 2u);
  EXPECT_EQ(shape.layers[0], (RoutedLayer{LayerId(1), 4, 2}));
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
  correlation_.begin_pass(1);
  EXPECT_TRUE(correlation_.predict(LayerId(1), 2).empty());
}

TEST_F(Predictor, WhatWasChosenIsPredicted) {
  pass(correlation_, {1, 3});
  correlation_.begin_pass(1);
  EXPECT_EQ(likeliest(correlation_, 1, 2), experts({1, 3}));
  EXPECT_EQ(likeliest(correlation_, 1, 1), experts({1}));
  EXPECT_EQ(likeliest(correlation_, 1, 60'000), experts({1, 3}));
  EXPECT_DOUBLE_EQ(correlation_.predict(LayerId(1), 1)[0].share, 0.5);
}

// Asking teaches nothing: the answer stays the same however often it is asked.
TEST_F(Predictor, AskingChangesNothing) {
  pass(correlation_, {1, 3});
  pass(correlation_, {1, 2});
  correlation_.begin_pass(1);
  const std::vector<ExpectedExpert> first = correlation_.predict(LayerId(1), 4);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(correlation_.predict(LayerId(1), 4), first);
  EXPECT_EQ(table_.popularity(0)[1], 2u);
}

TEST_F(Predictor, LayersAreObservedInTheirOrder) {
  correlation_.begin_pass(1);
  EXPECT_THROW(correlation_.observe(LayerId(2), experts({0, 1})), Error);
  EXPECT_THROW(correlation_.observe(LayerId(0), experts({0, 1})), Error);
  correlation_.observe(LayerId(1), experts({0, 1}));
  EXPECT_THROW(correlation_.observe(LayerId(1), experts({0, 1})), Error);
  EXPECT_EQ(correlation_.choices().known_layers(), 1u);
}

TEST_F(Predictor, APassGivenUpHalfWayDoesNotSpoilTheNext) {
  correlation_.begin_pass(2);
  correlation_.observe(LayerId(1), experts({1, 3, 1, 3}));
  pass(correlation_, {1, 3});  // begins with the first layer again
  EXPECT_EQ(correlation_.choices().known_layers(), 2u);
  EXPECT_EQ(likeliest(correlation_, 2, 2), experts({1, 3}));
}

TEST_F(Predictor, ThePopularAreThoseMostChosen) {
  PopularityPredictor popularity(model_, {{1.0}, {0.1, 0.4, 0.1, 0.4}, {0.4, 0.3, 0.2, 0.1}});
  popularity.begin_pass(1);
  EXPECT_EQ(likeliest(popularity, 1, 1), experts({1}));
  EXPECT_EQ(likeliest(popularity, 1, 3), experts({1, 3, 0})) << "equals as they are numbered";
  EXPECT_EQ(likeliest(popularity, 2, 9), experts({0, 1, 2, 3}));
  popularity.observe(LayerId(1), experts({2, 0}));
  EXPECT_EQ(likeliest(popularity, 1, 1), experts({1})) << "what a pass chooses does not count";
  EXPECT_THROW(PopularityPredictor(model_, {{1.0}}), Error);
}

}  // namespace
}  // namespace klotski
