#include "planner/memory_plan.h"

#include <gtest/gtest.h>

#include <random>

#include "base/bytes.h"
#include "base/error.h"

namespace klotski {
namespace {

UnitDemand& units(MemoryDemand& demand, UnitKind kind) { return demand.units[index_of(kind)]; }

MemoryDemand small_model() {
  MemoryDemand demand{.process_bytes = 10,
                      .activation_bytes = 20,
                      .units = {},
                      .kv_least_bytes = 5,
                      .kv_wanted_bytes = 50};
  units(demand, UnitKind::model) = {.units = 1, .least = 1, .buffer_bytes = 7};
  units(demand, UnitKind::attention) = {.units = 4, .least = 1, .buffer_bytes = 3};
  units(demand, UnitKind::gate) = {.units = 4, .least = 1, .buffer_bytes = 1};
  units(demand, UnitKind::expert) = {.units = 32, .least = 1, .buffer_bytes = 10};
  return demand;
}

int64_t slots(const MemoryPlan& plan, UnitKind kind) { return plan.slots[index_of(kind)]; }

TEST(MemoryPlan, TheLeastIsEnough) {
  const MemoryDemand demand = small_model();
  EXPECT_EQ(least_bytes(demand), 56u);
  const MemoryPlan plan = plan_memory(demand, {.bytes = 56});
  EXPECT_EQ(plan.total_bytes(), 56u);
  EXPECT_EQ(slots(plan, UnitKind::expert), 1);
  EXPECT_EQ(plan.kv_bytes, 5u);
}

TEST(MemoryPlan, OneByteLessIsRefusedWithTheShortfall) {
  try {
    plan_memory(small_model(), {.bytes = 55});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::does_not_fit);
    EXPECT_NE(std::string(error.what()).find("1 B too little"), std::string::npos) << error.what();
  }
}

TEST(MemoryPlan, KeysAndValuesThenDenseThenExperts) {
  const MemoryPlan plan = plan_memory(small_model(), {.bytes = 56 + 45 + 9 + 3 + 29});
  EXPECT_EQ(plan.kv_bytes, 5u + 45u);
  EXPECT_EQ(slots(plan, UnitKind::attention), 4);
  EXPECT_EQ(slots(plan, UnitKind::gate), 4);
  EXPECT_EQ(slots(plan, UnitKind::expert), 3);
}

TEST(MemoryPlan, WeightsOfEveryTokenBeforeKeysAndValuesThatMayLieBelow) {
  MemoryDemand demand = small_model();
  demand.kv_least_bytes = 0;
  demand.kv_stage_bytes = 8;
  const uint64_t least = least_bytes(demand);
  EXPECT_EQ(plan_memory(demand, {.bytes = least + 9 + 3}).kv_bytes, 0u);
  const MemoryPlan plan = plan_memory(demand, {.bytes = least + 9 + 3 + 30});
  EXPECT_EQ(slots(plan, UnitKind::attention), 4);
  EXPECT_EQ(slots(plan, UnitKind::gate), 4);
  EXPECT_EQ(plan.kv_bytes, 30u) << "and before experts";
  EXPECT_EQ(slots(plan, UnitKind::expert), 1);
}

TEST(MemoryPlan, EverythingResidentWhereItFits) {
  const MemoryPlan plan = plan_memory(small_model(), {.bytes = kGiB});
  EXPECT_EQ(slots(plan, UnitKind::expert), 32);
  EXPECT_LT(plan.total_bytes(), kGiB);
}

TEST(MemoryPlan, UserLimitsHold) {
  const MemoryPlan plan =
      plan_memory(small_model(), {.bytes = kGiB, .kv_bytes = 20, .expert_slots = 2});
  EXPECT_EQ(plan.kv_bytes, 20u);
  EXPECT_EQ(slots(plan, UnitKind::expert), 2);
  EXPECT_EQ(plan_memory(small_model(), {.bytes = kGiB, .kv_bytes = 5}).kv_bytes, 5u);
  EXPECT_THROW(plan_memory(small_model(), {.bytes = kGiB, .kv_bytes = 4}), Error);
}

// Random models and limits are refused exactly when the least does not fit; otherwise plans are
// within the limit and no kind gets more than it could use.
TEST(MemoryPlan, NeverAboveTheLimit) {
  std::mt19937_64 random(5);
  const auto below = [&](uint64_t n) { return random() % n; };
  for (int trial = 0; trial < 20000; ++trial) {
    MemoryDemand demand{.process_bytes = below(100),
                        .activation_bytes = below(100),
                        .units = {},
                        .kv_least_bytes = below(50)};
    demand.kv_wanted_bytes = demand.kv_least_bytes + below(100);
    demand.kv_stage_bytes = below(2) * below(30);
    for (UnitDemand& kind : demand.units) {
      kind.units = static_cast<int64_t>(below(20));
      kind.least = std::min<int64_t>(kind.units, 1);
      kind.buffer_bytes = 1 + below(40);
    }
    const uint64_t limit = below(2000);
    if (least_bytes(demand) > limit) {
      EXPECT_THROW(plan_memory(demand, {.bytes = limit}), Error);
      continue;
    }
    const MemoryPlan plan = plan_memory(demand, {.bytes = limit});
    ASSERT_LE(plan.total_bytes(), limit);
    ASSERT_LE(plan.kv_bytes, demand.kv_wanted_bytes);
    for (size_t kind = 0; kind < kUnitKinds; ++kind) {
      ASSERT_GE(plan.slots[kind], demand.units[kind].least);
      ASSERT_LE(plan.slots[kind], demand.units[kind].units);
    }
  }
}

TEST(MemoryPlan, TheTableAddsUp) {
  const std::string table = format_memory_plan(plan_memory(small_model(), {.bytes = kGiB}));
  EXPECT_NE(table.find("all 32 resident"), std::string::npos) << table;
  EXPECT_NE(table.find("of 1.00 GiB allowed"), std::string::npos) << table;
}

}  // namespace
}  // namespace klotski
