#include "engine/hot_experts.h"

#include <gtest/gtest.h>

#include "engine/testing/models.h"

namespace klotski {
namespace {

using Ids = std::vector<ExpertId>;

Ids ids(std::initializer_list<int32_t> values) {
  Ids experts;
  for (const int32_t value : values) experts.push_back(ExpertId(value));
  return experts;
}

class HotExpertsTest : public ::testing::Test {
 protected:
  HotExpertsTest() : model_(read_config(test_model("mixtral"))) {}

  // A pass of one token that chooses these in every layer.
  void pass(HotExperts& hot, const Ids& choices) {
    hot.begin_pass(1);
    for (int64_t i = 0; i < model_.layer_count(); ++i) {
      hot.foretell(LayerId(i));
      hot.learn(LayerId(i), choices);
    }
  }

  ModelDescription model_;
};

TEST_F(HotExpertsTest, NothingIsForetoldBeforeAnythingWasSeen) {
  HotExperts hot(model_, 0);
  hot.begin_pass(1);
  EXPECT_TRUE(hot.foretell(LayerId(0)).empty());
  for (const LayerAccuracy& layer : hot.accuracy()) EXPECT_EQ(layer.foretold, 0);
}

TEST_F(HotExpertsTest, WhatWasChosenIsForetoldAndCounted) {
  HotExperts hot(model_, 0);
  ASSERT_EQ(model_.layer(LayerId(0)).feed_forward.router.top_k, 2);
  pass(hot, ids({1, 3}));
  pass(hot, ids({1, 3}));
  EXPECT_EQ(hot.foretell(LayerId(0)), ids({1, 3}));
  for (const LayerAccuracy& layer : hot.accuracy()) {
    EXPECT_EQ(layer.foretold, 2) << layer.layer.value;  // in the second pass
    EXPECT_EQ(layer.participated, 2);
    EXPECT_EQ(layer.truly_hot, 2);
  }
}

TEST_F(HotExpertsTest, AWrongGuessIsCountedAsForetoldOnly) {
  HotExperts hot(model_, 0);
  pass(hot, ids({1, 3}));
  pass(hot, ids({0, 2}));
  for (const LayerAccuracy& layer : hot.accuracy()) {
    EXPECT_EQ(layer.foretold, 2);
    EXPECT_EQ(layer.participated, 0);
    EXPECT_EQ(layer.truly_hot, 0);
  }
}

// Three tokens: expert 0 takes three, 1 two, 2 one; a foretold 2 took part but is not among the
// two hottest.
TEST_F(HotExpertsTest, ParticipatingIsLessThanBeingHot) {
  HotExperts hot(model_, 0);
  pass(hot, ids({2, 0}));
  hot.begin_pass(3);
  EXPECT_EQ(hot.foretell(LayerId(0)), ids({0, 2}));
  hot.learn(LayerId(0), ids({0, 1, 0, 1, 0, 2}));
  const LayerAccuracy& layer = hot.accuracy()[0];
  EXPECT_EQ(layer.foretold, 2);
  EXPECT_EQ(layer.participated, 2);
  EXPECT_EQ(layer.truly_hot, 1);
}

TEST_F(HotExpertsTest, TheCountIsThatAskedForAtMostWhatIsKnown) {
  HotExperts one(model_, 1);
  pass(one, ids({1, 3}));
  EXPECT_EQ(one.foretell(LayerId(0)).size(), 1u);
  HotExperts many(model_, 60'000);
  pass(many, ids({1, 3}));
  EXPECT_EQ(many.foretell(LayerId(0)), ids({1, 3}));
}

TEST_F(HotExpertsTest, APassGivenUpHalfWayDoesNotSpoilTheNext) {
  HotExperts hot(model_, 0);
  pass(hot, ids({1, 3}));
  hot.begin_pass(2);
  hot.foretell(LayerId(0));
  hot.learn(LayerId(0), ids({1, 3, 1, 3}));
  pass(hot, ids({1, 3}));  // restarts from layer 0
  EXPECT_EQ(hot.accuracy().back().foretold, 2);
  EXPECT_EQ(hot.accuracy().back().truly_hot, 2);
}

// The one feed-forward part of a dense layer is always needed, and no table knows of it.
TEST(HotExpertsOfDenseLayers, TheOnlyOneIsForetold) {
  const ModelDescription model = read_config(test_model("variants/qwen3_dense_bias"));
  HotExperts hot(model, 0);
  hot.begin_pass(1);
  int64_t dense = 0;
  for (int64_t i = 0; i < model.layer_count(); ++i) {
    if (model.layer(LayerId(i)).feed_forward.routed) continue;
    ++dense;
    EXPECT_EQ(hot.foretell(LayerId(i)), ids({0}));
  }
  EXPECT_GT(dense, 0);
  EXPECT_EQ(static_cast<int64_t>(hot.accuracy().size()), model.layer_count() - dense);
}

}  // namespace
}  // namespace klotski
