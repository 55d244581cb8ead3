#include "executor/prefetch_audit.h"

#include <gtest/gtest.h>

#include <optional>

namespace klotski {
namespace {

class PrefetchAuditTest : public ::testing::Test {
 protected:
  // A load of an expert into a slot, or of a part of one that begins at `offset`.
  void load(int32_t slot, uint64_t bytes, LoadReason reason = LoadReason::prefetch,
            uint64_t offset = 0) {
    Task task = of_expert(Work::load, slot);
    task.bytes = bytes;
    task.reason = reason;
    task.offset = offset;
    audit_.observe(task, {});
  }
  void use(int32_t slot, std::optional<Lane> waited_for = std::nullopt) {
    TimelineSpan span;
    span.waited_for = waited_for;
    audit_.observe(of_expert(Work::expert, slot), span);
  }
  void expect(const PrefetchBytes& expected) {
    EXPECT_EQ(audit_.bytes().useful, expected.useful);
    EXPECT_EQ(audit_.bytes().late, expected.late);
    EXPECT_EQ(audit_.bytes().wasted, expected.wasted);
  }

  static Task of_expert(Work work, int32_t slot) {
    return {.work = work,
            .unit = {.kind = UnitKind::expert, .layer = LayerId(0), .expert = ExpertId(0)},
            .tier = kComputeTier,
            .slot = slot};
  }

  PrefetchAudit audit_;
};

TEST_F(PrefetchAuditTest, UsedInTime) {
  load(1, 100);
  use(1);
  use(1);
  expect({.useful = 100});
}

TEST_F(PrefetchAuditTest, WaitedForOnTheDiskOrOnTheLink) {
  load(1, 100);
  use(1, Lane::kDiskRead);
  load(2, 10);
  use(2, Lane::kToDevice);
  load(3, 1);
  use(3, Lane::kCompute);
  expect({.useful = 1, .late = 110});
}

TEST_F(PrefetchAuditTest, OverwrittenBeforeItsUse) {
  load(1, 100);
  load(1, 70);
  use(1);
  load(2, 5, LoadReason::demand);
  load(2, 3, LoadReason::demand);
  use(2);
  expect({.useful = 70, .wasted = 100});
}

// Parts of one expert are no new expert.
TEST_F(PrefetchAuditTest, PartsAddUp) {
  load(1, 60);
  load(1, 40, LoadReason::prefetch, 60);
  use(1);
  expect({.useful = 100});
}

}  // namespace
}  // namespace klotski
