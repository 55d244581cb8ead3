#include "engine/prediction_audit.h"

#include <gtest/gtest.h>

namespace klotski {
namespace {

using Ids = std::vector<ExpertId>;

Ids expert_ids(std::initializer_list<int32_t> values) {
  Ids experts;
  for (const int32_t value : values) experts.push_back(ExpertId(value));
  return experts;
}

// Layers 1 and 3 are routed.
RoutingTraceShape two_routed() {
  return {.model = "test", .layers = {{LayerId(1), 4, 2}, {LayerId(3), 4, 2}}};
}

TEST(PredictionAudit, WithoutAPredictionNothingIsCounted) {
  PredictionAudit audit(two_routed());
  audit.chosen(LayerId(1), expert_ids({1, 3}));
  ASSERT_EQ(audit.accuracy().size(), 2u);
  EXPECT_EQ(audit.accuracy()[1].layer, LayerId(3));
  for (const LayerAccuracy& layer : audit.accuracy()) EXPECT_EQ(layer.foretold, 0);
}

TEST(PredictionAudit, WhatWasPredictedAndChosenIsCounted) {
  PredictionAudit audit(two_routed());
  for (const int64_t layer : {1, 3}) {
    audit.predicted(LayerId(layer), expert_ids({1, 3}));
    audit.chosen(LayerId(layer), expert_ids({1, 3}));
  }
  for (const LayerAccuracy& layer : audit.accuracy()) {
    EXPECT_EQ(layer.foretold, 2) << layer.layer.value;
    EXPECT_EQ(layer.participated, 2);
    EXPECT_EQ(layer.truly_hot, 2);
  }
}

TEST(PredictionAudit, AWrongPredictionIsCountedAsForetoldOnly) {
  PredictionAudit audit(two_routed());
  audit.predicted(LayerId(3), expert_ids({1, 3}));
  audit.chosen(LayerId(3), expert_ids({0, 2}));
  const LayerAccuracy& layer = audit.accuracy()[1];
  EXPECT_EQ(layer.foretold, 2);
  EXPECT_EQ(layer.participated, 0);
  EXPECT_EQ(layer.truly_hot, 0);
}

// Three tokens: expert 0 takes three, 1 two, 2 one; a predicted 2 took part but is not among the
// two hottest.
TEST(PredictionAudit, ParticipatingIsLessThanBeingHot) {
  PredictionAudit audit(two_routed());
  audit.predicted(LayerId(1), expert_ids({0, 2}));
  audit.chosen(LayerId(1), expert_ids({0, 1, 0, 1, 0, 2}));
  const LayerAccuracy& layer = audit.accuracy()[0];
  EXPECT_EQ(layer.foretold, 2);
  EXPECT_EQ(layer.participated, 2);
  EXPECT_EQ(layer.truly_hot, 1);
}

TEST(PredictionAudit, OnlyTheLastPredictionCounts) {
  PredictionAudit audit(two_routed());
  audit.predicted(LayerId(1), expert_ids({2}));
  audit.predicted(LayerId(1), expert_ids({0, 1}));
  audit.chosen(LayerId(1), expert_ids({0, 1}));
  EXPECT_EQ(audit.accuracy()[0].foretold, 2);
  EXPECT_EQ(audit.accuracy()[0].participated, 2);
}

TEST(PredictionAudit, DenseLayersDoNotCount) {
  PredictionAudit audit(two_routed());
  for (const int64_t layer : {0, 2, 4}) audit.predicted(LayerId(layer), expert_ids({0}));
  EXPECT_EQ(audit.accuracy().size(), 2u);
}

}  // namespace
}  // namespace klotski
