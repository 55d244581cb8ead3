#include "planner/preview.h"

#include <gtest/gtest.h>

#include "planner/testing.h"

namespace klotski {
namespace {

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

}  // namespace
}  // namespace klotski
