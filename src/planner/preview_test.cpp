#include "planner/preview.h"

#include <gtest/gtest.h>

#include <map>

#include "planner/testing.h"

namespace klotski {
namespace {

TEST(UnitTable, EveryUnitHasAValue) {
  ModelDescription model = shape_of(3, 8, 2);
  model.layers[1].feed_forward.routed = false;
  model.layers[1].feed_forward.experts = 1;
  UnitTable<int> table(model);
  int next = 0;
  const auto for_each_unit = [&](const auto& action) {
    next = 1;
    for (size_t kind = 0; kind < kUnitKinds; ++kind) {
      for (const WeightUnit& unit : units_of(model, static_cast<UnitKind>(kind))) {
        action(unit, next++);
      }
    }
  };
  for_each_unit([&](const WeightUnit& unit, int) { EXPECT_EQ(table[unit], 0); });
  for_each_unit([&](const WeightUnit& unit, int value) { table[unit] = value; });
  for_each_unit([&](const WeightUnit& unit, int value) { EXPECT_EQ(table[unit], value); });
  EXPECT_EQ(next, 1 + 1 + 3 + 3 + 1 + 2 * 8);
}

constexpr PlannedWork kWork{
    .sequences = 8, .prompt_tokens = 16, .generated_tokens = 8, .at_once = 8};

double share_of(const Preview& seen, UnitKind kind) {
  double sum = 0.0;
  double count = 0.0;
  for (const PreviewedUnit& one : seen.placement) {
    if (one.unit.kind != kind) continue;
    EXPECT_GE(one.memory_share, 0.0);
    EXPECT_LE(one.memory_share, 1.0);
    sum += one.memory_share;
    count += 1.0;
  }
  return sum / count;
}

TEST(Preview, WhatFitsStaysInMemory) {
  const Bench bench;
  const Preview seen = preview(bench.prediction_inputs(), resident_policy(bench.model), kWork);
  EXPECT_EQ(share_of(seen, UnitKind::attention), 1.0);
  EXPECT_EQ(share_of(seen, UnitKind::expert), 1.0);
  EXPECT_EQ(seen.placement.size(), 1u + 4 + 4 + 32);
  EXPECT_FALSE(seen.spans.empty());
}

// Eight slots for 32 experts that are all used in every pass: about a quarter is found again.
TEST(Preview, WhatDoesNotFitIsReadAgain) {
  const Bench bench;
  Policy policy = resident_policy(bench.model);
  policy.layout.compute().slots[index_of(UnitKind::expert)] = 8;
  const Preview seen = preview(bench.prediction_inputs(), policy, kWork);
  EXPECT_EQ(share_of(seen, UnitKind::attention), 1.0);
  EXPECT_LE(share_of(seen, UnitKind::expert), 0.3);
  EXPECT_GT(share_of(seen, UnitKind::expert), 0.0);
}

// A drawing shows the spans of one step: these must be one decoding pass, not all passes at once.
TEST(Preview, EveryPassIsAStepOfItsOwn) {
  const Bench bench;
  const Preview seen = preview(bench.prediction_inputs(), resident_policy(bench.model), kWork);
  std::map<int64_t, std::map<int32_t, int64_t>> attentions;  // spans by step and layer
  for (const TimelineSpan& span : seen.spans) {
    if (span.work == "attention") ++attentions[span.step][span.layer];
  }
  ASSERT_EQ(attentions.size(), 9u);  // one of prompts, eight that decode
  const std::map<int32_t, int64_t>& decoding = attentions.rbegin()->second;
  EXPECT_EQ(decoding.size(), 4u);
  for (const auto& [layer, count] : decoding) EXPECT_EQ(count, decoding.begin()->second);
  EXPECT_LE(decoding.begin()->second, resident_policy(bench.model).group.micro_batches);
}

}  // namespace
}  // namespace klotski
