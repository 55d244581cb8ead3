#include "schedule/dependencies.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

#include "base/error.h"
#include "hardware/machine.h"

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

Numbers numbers(const std::vector<Edge>& edges) {
  Numbers earlier;
  for (const Edge& edge : edges) earlier.push_back(edge.task);
  return earlier;
}

TEST(Dependencies, AReaderWaitsForTheLastWriter) {
  Dependencies dependencies;
  EXPECT_EQ(numbers(dependencies.add(task({}, {kA}))), Numbers());
  EXPECT_EQ(numbers(dependencies.add(task({}, {kA}))), Numbers({0}));
  EXPECT_EQ(numbers(dependencies.add(task({kA}, {}))), Numbers({1}));
  EXPECT_EQ(numbers(dependencies.add(task({kB}, {}))), Numbers());
}

TEST(Dependencies, AWriterWaitsForEveryReaderSince) {
  Dependencies dependencies;
  dependencies.add(task({}, {kA}));
  dependencies.add(task({kA}, {}));
  dependencies.add(task({kA}, {kB}));
  EXPECT_EQ(numbers(dependencies.add(task({}, {kA}))), Numbers({0, 1, 2}));
}

TEST(Dependencies, ADecisionIsFollowedButNotHeld) {
  Dependencies dependencies;
  dependencies.add(task({}, {kA}));
  EXPECT_EQ(numbers(dependencies.add(task({}, {kB}, {kA}))), Numbers({0}));
  EXPECT_EQ(numbers(dependencies.add(task({}, {kA}))), Numbers({0}));
}

TEST(Dependencies, ThoseThatFillAPlaceWaitForEverythingButEachOther) {
  Dependencies dependencies;
  const Task fill = task({}, {}, {}, {kA});
  dependencies.add(task({}, {kA}));
  EXPECT_EQ(numbers(dependencies.add(fill)), Numbers({0}));
  EXPECT_EQ(numbers(dependencies.add(fill)), Numbers({0}));
  EXPECT_EQ(numbers(dependencies.add(task({kA}, {}))), Numbers({1, 2}));
  EXPECT_EQ(numbers(dependencies.add(fill)), Numbers({3}));
  EXPECT_EQ(numbers(dependencies.add(fill)), Numbers({3}));
  EXPECT_EQ(numbers(dependencies.add(task({}, {kB}, {kA}))), Numbers({4, 5}));
  EXPECT_EQ(numbers(dependencies.add(task({}, {kA}))), Numbers({4, 5}));
  EXPECT_EQ(numbers(dependencies.add(fill)), Numbers({7}));
}

TEST(Dependencies, WhatIsDoneIsNotWaitedFor) {
  Dependencies dependencies;
  dependencies.add(task({}, {kA}));
  for (int i = 0; i < 100; ++i) dependencies.add(task({kA}, {}));
  dependencies.done_before(50);
  const Numbers waits = numbers(dependencies.add(task({}, {kA})));
  ASSERT_EQ(waits.size(), 51u);
  EXPECT_EQ(waits.front(), 50);
}

// Against lists of all uses of each place, in which nobody is ever forgotten.
TEST(Dependencies, EdgesAscendAndNameEachEarlierTaskThatIsNotDoneOnce) {
  std::mt19937 random(11);
  Dependencies dependencies;
  struct Use {
    TaskNumber task;
    bool writes;
  };
  std::vector<std::vector<Use>> uses(6);  // by place
  TaskNumber done = 0;
  for (TaskNumber n = 0; n < 3000; ++n) {
    const auto some = [&] {
      std::vector<Resource> chosen;
      for (int32_t i = 5; i >= 0; --i) {  // the order of places says nothing about that of uses
        if (random() % 4 == 0) chosen.push_back({Place::slot, i, UnitKind::expert});
      }
      return chosen;
    };
    const Task added = task(some(), some());
    std::set<TaskNumber> expected;
    const auto wait_for = [&](const Resource& place, bool readers) {
      std::vector<Use>& of_place = uses[static_cast<size_t>(place.number)];
      for (size_t i = of_place.size(); i-- > 0;) {
        if (of_place[i].task >= done && (of_place[i].writes || readers)) {
          expected.insert(of_place[i].task);
        }
        if (of_place[i].writes) return;
      }
    };
    for (const Resource& place : added.reads) wait_for(place, false);
    for (const Resource& place : added.writes) wait_for(place, true);
    ASSERT_EQ(numbers(dependencies.add(added)), Numbers(expected.begin(), expected.end()));
    for (const Resource& place : added.reads) {
      uses[static_cast<size_t>(place.number)].push_back({n, false});
    }
    for (const Resource& place : added.writes) {
      uses[static_cast<size_t>(place.number)].push_back({n, true});
    }
    if (random() % 3 == 0) done += static_cast<TaskNumber>(random()) % (n + 2 - done);
    dependencies.done_before(done);
  }
}

// The definition: where two tasks touch one place, and one of them writes it, the later waits for
// the earlier, directly or through others.
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
      for (const TaskNumber earlier : numbers(dependencies.add(tasks.back()))) {
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

Task of_kind(Work work, Lane lane, std::vector<Resource> reads, std::vector<Resource> writes) {
  Task made = task(std::move(reads), std::move(writes));
  made.work = work;
  made.lane = lane;
  return made;
}

LaneRules all_begin_ahead() {
  LaneRules lanes;
  for (const Lane lane : device_over_host().lanes()) lanes.most_begun.at(lane) = 4;
  return lanes;
}

// The edge between two tasks of these kinds, the later of which reads a place that the earlier
// writes.
After edge_between(const LaneRules& lanes, const Task& earlier, const Task& later) {
  Dependencies dependencies(lanes);
  dependencies.add(earlier);
  return dependencies.add(later).at(0).after;
}

TEST(EdgeKinds, NothingBeginsAheadOnAHost) {
  for (size_t i = 0; i < kWorkCount; ++i) {
    for (size_t j = 0; j < kWorkCount; ++j) {
      const Task earlier = of_kind(static_cast<Work>(i), Lane::kCompute, {}, {kA});
      const Task later = of_kind(static_cast<Work>(j), Lane::kCompute, {kA}, {});
      EXPECT_EQ(edge_between({}, earlier, later), After::done);
    }
  }
}

TEST(EdgeKinds, AProcessorKeepsTheOrderOfWhatBeginsAhead) {
  const Task gate = of_kind(Work::gate, Lane::kCompute, {}, {kA});
  const auto after_gate = [&](Work work, Lane lane) {
    return edge_between(all_begin_ahead(), gate, of_kind(work, lane, {kA}, {}));
  };
  EXPECT_EQ(after_gate(Work::combine, Lane::kCompute), After::begun);
  EXPECT_EQ(after_gate(Work::logits, Lane::kCompute), After::done) << "logits do not begin ahead";
  EXPECT_EQ(after_gate(Work::combine, Lane::kCpu), After::done) << "another processor's order";
  EXPECT_EQ(after_gate(Work::rows_down, Lane::kRowsDown), After::begun);
  EXPECT_EQ(after_gate(Work::rows_up, Lane::kRowsUp), After::done);
  EXPECT_EQ(after_gate(Work::load, Lane::kToDevice), After::done);
}

TEST(EdgeKinds, AnExpertWaitsByItselfForAWholeLoadThatBeginsAhead) {
  Task load = of_kind(Work::load, Lane::kToDevice, {}, {kA});
  const Task expert = of_kind(Work::expert, Lane::kCompute, {kA}, {});
  EXPECT_EQ(edge_between(all_begin_ahead(), load, expert), After::begun);
  LaneRules link_does_not = all_begin_ahead();
  link_does_not.most_begun.at(Lane::kToDevice) = 0;
  EXPECT_EQ(edge_between(link_does_not, load, expert), After::done);
  LaneRules processor_does_not = all_begin_ahead();
  processor_does_not.most_begun.at(Lane::kCompute) = 0;
  EXPECT_EQ(edge_between(processor_does_not, load, expert), After::done);
  load.partial = true;
  EXPECT_EQ(edge_between(all_begin_ahead(), load, expert), After::done);
}

TEST(EdgeKinds, CountsNeedProgramOrder) {
  const Task expert = of_kind(Work::expert_on_cpu, Lane::kCpu, {}, {kA});
  const Task up = of_kind(Work::rows_up, Lane::kRowsUp, {kA}, {kB});
  EXPECT_EQ(edge_between(all_begin_ahead(), expert, up), After::begun);
  LaneRules reordered = all_begin_ahead();
  reordered.keep_program_order = false;
  EXPECT_EQ(edge_between(reordered, expert, up), After::done);
  const Task scatter = of_kind(Work::scatter, Lane::kCompute, {kB}, {});
  EXPECT_EQ(edge_between(reordered, up, scatter), After::begun) << "by an event";
}

TEST(Withdrawn, NobodyReadsWhatWasNotBrought) {
  Dependencies dependencies;
  dependencies.add(task({kA}, {}));
  const Task load = task({}, {kA});
  EXPECT_EQ(numbers(dependencies.add(load)), Numbers({0}));
  dependencies.withdraw(load, 1);
  EXPECT_THROW(dependencies.add(task({kA}, {})), Error);
  EXPECT_EQ(dependencies.next(), 2) << "nothing was counted";
  EXPECT_EQ(numbers(dependencies.add(load)), Numbers({1})) << "and so for the reader of old";
  EXPECT_EQ(numbers(dependencies.add(task({kA}, {}))), Numbers({2}));
  dependencies.withdraw(load, 1);  // overwritten meanwhile
  EXPECT_EQ(numbers(dependencies.add(task({kA}, {}))), Numbers({2}));
}

TEST(Withdrawn, ATaskAfterOneThatFailedStillWaits) {
  Dependencies dependencies;
  const Task load = task({}, {kA});
  dependencies.add(load);
  dependencies.add(task({}, {kB}));
  dependencies.withdraw(load, 0);
  EXPECT_THROW(dependencies.add(task({kB, kA}, {kB})), Error);
  EXPECT_EQ(numbers(dependencies.add(task({kB}, {}))), Numbers({1}));
}

TEST(TaskKinds, EachRowIsComplete) {
  for (size_t i = 0; i < kWorkCount; ++i) {
    const TaskKind& kind = kind_of(static_cast<Work>(i));
    EXPECT_EQ(kind.work, static_cast<Work>(i));
    EXPECT_FALSE(kind.name.empty());
    for (size_t j = 0; j < kWorkCount; ++j) {
      const auto other = static_cast<Work>(j);
      // A task that waits by itself begins ahead, and an event needs a task that began ahead.
      const bool awaits = kind.awaits.has(other) || kind.awaits_count.has(other);
      EXPECT_TRUE(!awaits || kind.begins_ahead);
      EXPECT_TRUE(!kind.awaits.has(other) || kind_of(other).begins_ahead);
    }
  }
}

}  // namespace
}  // namespace klotski
