#include "schedule/dependencies.h"

#include <gtest/gtest.h>

#include <random>

namespace klotski {
namespace {

Task task(std::vector<Resource> reads, std::vector<Resource> writes,
          std::vector<Resource> after = {}, std::vector<Resource> fills = {}) {
  Task task;
  task.reads = std::move(reads);
  task.writes = std::move(writes);
  task.after = std::move(after);
  task.fills = std::move(fills);
  return task;
}

constexpr Resource kA{Place::hidden, 0};
constexpr Resource kB{Place::hidden, 1};

using Numbers = std::vector<TaskNumber>;

TEST(Dependencies, AReaderWaitsForTheLastWriter) {
  Dependencies dependencies;
  EXPECT_EQ(dependencies.add(task({}, {kA})), Numbers());
  EXPECT_EQ(dependencies.add(task({}, {kA})), Numbers({0}));
  EXPECT_EQ(dependencies.add(task({kA}, {})), Numbers({1}));
  EXPECT_EQ(dependencies.add(task({kB}, {})), Numbers());
}

TEST(Dependencies, AWriterWaitsForEveryReaderSince) {
  Dependencies dependencies;
  dependencies.add(task({}, {kA}));
  dependencies.add(task({kA}, {}));
  dependencies.add(task({kA}, {kB}));
  EXPECT_EQ(dependencies.add(task({}, {kA})), Numbers({0, 1, 2}));
}

TEST(Dependencies, ADecisionIsFollowedButNotHeld) {
  Dependencies dependencies;
  dependencies.add(task({}, {kA}));
  EXPECT_EQ(dependencies.add(task({}, {kB}, {kA})), Numbers({0}));
  EXPECT_EQ(dependencies.add(task({}, {kA})), Numbers({0}));
}

TEST(Dependencies, ThoseThatFillAPlaceWaitForEverythingButEachOther) {
  Dependencies dependencies;
  const Task fill = task({}, {}, {}, {kA});
  dependencies.add(task({}, {kA}));
  EXPECT_EQ(dependencies.add(fill), Numbers({0}));
  EXPECT_EQ(dependencies.add(fill), Numbers({0}));
  EXPECT_EQ(dependencies.add(task({kA}, {})), Numbers({1, 2}));
  EXPECT_EQ(dependencies.add(fill), Numbers({3}));
  EXPECT_EQ(dependencies.add(fill), Numbers({3}));
  EXPECT_EQ(dependencies.add(task({}, {kB}, {kA})), Numbers({4, 5}));
  EXPECT_EQ(dependencies.add(task({}, {kA})), Numbers({4, 5}));
  EXPECT_EQ(dependencies.add(fill), Numbers({7}));
}

TEST(Dependencies, WhatIsDoneIsNotWaitedFor) {
  Dependencies dependencies;
  dependencies.add(task({}, {kA}));
  for (int i = 0; i < 100; ++i) dependencies.add(task({kA}, {}));
  dependencies.done_before(50);
  const Numbers waits = dependencies.add(task({}, {kA}));
  ASSERT_EQ(waits.size(), 51u);
  EXPECT_EQ(waits.front(), 50);
}

// Against the definition: of two tasks that touch the same place, one of them writing, the later
// waits for the earlier, directly or through others.
TEST(Dependencies, ConflictingTasksAreOrderedAndOthersAreNot) {
  std::mt19937 random(7);
  const auto conflict = [](const Task& a, const Task& b) {
    const auto touches = [](const std::vector<Resource>& one, const std::vector<Resource>& two) {
      for (const Resource& x : one) {
        for (const Resource& y : two) {
          if (x == y) return true;
        }
      }
      return false;
    };
    return touches(a.writes, b.writes) || touches(a.writes, b.reads) ||
           touches(a.reads, b.writes) || touches(a.writes, b.after) || touches(a.fills, b.writes) ||
           touches(a.fills, b.reads) || touches(a.fills, b.after) || touches(a.writes, b.fills) ||
           touches(a.reads, b.fills);
  };
  for (int trial = 0; trial < 2000; ++trial) {
    Dependencies dependencies;
    std::vector<Task> tasks;
    std::vector<std::vector<bool>> before;  // [later][earlier], transitive
    for (size_t n = 0; n < 12; ++n) {
      const auto some = [&] {
        std::vector<Resource> chosen;
        for (int32_t i = 0; i < 4; ++i) {
          if (random() % 5 == 0) chosen.push_back({Place::slot, i, UnitKind::expert});
        }
        return chosen;
      };
      tasks.push_back(task(some(), some(), some(), some()));
      std::vector<bool> reach(n, false);
      for (const TaskNumber earlier : dependencies.add(tasks.back())) {
        const auto at = static_cast<size_t>(earlier);
        ASSERT_TRUE(conflict(tasks[at], tasks[n]));
        reach[at] = true;
        for (size_t i = 0; i < at; ++i) reach[i] = reach[i] || before[at][i];
      }
      for (size_t i = 0; i < n; ++i) {
        ASSERT_TRUE(reach[i] || !conflict(tasks[i], tasks[n]));
      }
      before.push_back(std::move(reach));
    }
  }
}

}  // namespace
}  // namespace klotski
