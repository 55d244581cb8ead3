#include "executor/executor.h"

#include <gtest/gtest.h>

#include <atomic>
#include <random>

#include "base/error.h"
#include "schedule/testing.h"

namespace klotski {
namespace {

Task task(Lane lane, std::vector<Resource> reads, std::vector<Resource> writes) {
  Task task;
  task.lane = lane;
  task.reads = std::move(reads);
  task.writes = std::move(writes);
  return task;
}

Resource place(int32_t number) { return {Place::hidden, number}; }

// Memory that notices when it is touched by two tasks at once or in another order than the
// program's: each write stores the number of its task, each read must find the right one.
class Guarded {
 public:
  explicit Guarded(size_t places) : values_(places), readers_(places) {}

  void run(const Task& task, int64_t number, const std::vector<int64_t>& expected) {
    for (size_t i = 0; i < task.reads.size(); ++i) {
      const auto at = static_cast<size_t>(task.reads[i].number);
      ++readers_[at];
      if (values_[at] != expected[i]) ++mistakes;
    }
    for (const Resource& resource : task.writes) {
      const auto at = static_cast<size_t>(resource.number);
      const int64_t mine = std::count(task.reads.begin(), task.reads.end(), resource);
      if (readers_[at] != mine) ++mistakes;
      values_[at] = -number - 2;  // half-written
    }
    std::this_thread::yield();
    for (const Resource& resource : task.writes) {
      const auto at = static_cast<size_t>(resource.number);
      if (values_[at] != -number - 2) ++mistakes;
      values_[at] = number;
    }
    for (const Resource& resource : task.reads) --readers_[static_cast<size_t>(resource.number)];
  }

  std::atomic<int64_t> mistakes = 0;

 private:
  std::vector<std::atomic<int64_t>> values_;
  std::vector<std::atomic<int64_t>> readers_;
};

// Random tasks on random lanes: whatever order the executor chooses, each reads what the program
// order says it should.
void run_random_schedules(int schedules, const ExecutorOptions& options) {
  constexpr int32_t kPlaces = 6;
  std::mt19937_64 random(options.stress_seed.value_or(9));
  Guarded memory(kPlaces);
  std::vector<int64_t> last_writer(kPlaces, 0);
  std::mutex mutex;
  std::map<uint64_t, std::pair<int64_t, std::vector<int64_t>>> expected;  // by Task::bytes
  Timeline timeline(0);
  Executor executor(
      [&](const Task& ran) {
        std::pair<int64_t, std::vector<int64_t>> entry;
        {
          const std::lock_guard lock(mutex);
          entry = expected.at(ran.bytes);
        }
        memory.run(ran, entry.first, entry.second);
      },
      {}, timeline, options);
  int64_t number = 0;
  for (int schedule = 0; schedule < schedules; ++schedule) {
    Fragment fragment;
    const int64_t size = between(random, 1, 12);
    for (int64_t i = 0; i < size; ++i) {
      const auto some = [&] {
        std::vector<Resource> chosen;
        for (int32_t p = 0; p < kPlaces; ++p) {
          if (between(random, 0, 3) == 0) chosen.push_back(place(p));
        }
        return chosen;
      };
      Task made = task(static_cast<Lane>(between(random, 0, kLaneCount - 1)), some(), some());
      made.bytes = static_cast<uint64_t>(++number);
      std::vector<int64_t> reads;
      for (const Resource& resource : made.reads) {
        reads.push_back(last_writer[static_cast<size_t>(resource.number)]);
      }
      for (const Resource& resource : made.writes) {
        last_writer[static_cast<size_t>(resource.number)] = number;
      }
      const std::lock_guard lock(mutex);
      expected[made.bytes] = {number, std::move(reads)};
      fragment.push_back(std::move(made));
    }
    const TaskNumber last = executor.submit(std::move(fragment));
    if (between(random, 0, 3) == 0) executor.wait(last);
    if (between(random, 0, 20) == 0) {
      executor.drain(false);
      const std::lock_guard lock(mutex);
      expected.clear();
    }
  }
  executor.drain(false);
  EXPECT_EQ(memory.mistakes, 0);
}

TEST(Executor, TenThousandRandomSchedulesInOrder) { run_random_schedules(10000, {}); }

TEST(Executor, TenThousandRandomSchedulesReordered) {
  run_random_schedules(10000, {.stress_seed = 4, .stress_delay = std::chrono::microseconds(3)});
}

TEST(Executor, AMistakeInTheDeclarationsIsNoticed) {
  // A reader that does not say so: reordered lanes show it sooner or later.
  Timeline timeline(0);
  std::atomic<int> value = 0;
  std::atomic<int> wrong = 0;
  {
    Executor executor(
        [&](const Task& ran) {
          if (ran.lane == Lane::disk_read) ++value;
          if (ran.lane == Lane::compute && value != static_cast<int>(ran.bytes)) ++wrong;
        },
        {}, timeline, {.stress_seed = 1, .stress_delay = std::chrono::microseconds(50)});
    for (int i = 1; i <= 200; ++i) {
      Task reader = task(Lane::compute, {}, {});
      reader.bytes = static_cast<uint64_t>(i);
      executor.submit({task(Lane::disk_read, {}, {place(0)}), reader});
    }
    executor.drain(false);
  }
  EXPECT_GT(wrong, 0);
}

TEST(Executor, AFailureStopsEverythingBehindItAndIsReported) {
  Timeline timeline(0);
  std::atomic<int> ran_after = 0;
  Executor executor(
      [&](const Task& ran) {
        if (ran.bytes == 1) fail(ErrorKind::internal, "the disk is broken");
        if (ran.bytes == 2) ++ran_after;
      },
      {}, timeline);
  Task failing = task(Lane::disk_read, {}, {place(0)});
  failing.bytes = 1;
  Task behind = task(Lane::compute, {place(0)}, {});
  behind.bytes = 2;
  const TaskNumber last = executor.submit({failing, behind, behind});
  try {
    executor.wait(last);
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "the disk is broken");
  }
  EXPECT_THROW(executor.drain(false), Error);
  EXPECT_EQ(ran_after, 0);

  executor.recover();
  executor.wait(executor.submit({behind}));
  EXPECT_EQ(ran_after, 1);
}

TEST(Executor, EndsWhileTasksAreLeft) {
  std::atomic<int> ran = 0;
  for (int trial = 0; trial < 50; ++trial) {
    Timeline timeline(0);
    Executor executor([&](const Task&) { ++ran; }, {}, timeline,
                      {.stress_seed = static_cast<uint64_t>(trial)});
    Fragment fragment;
    for (int i = 0; i < 40; ++i) {
      fragment.push_back(task(static_cast<Lane>(i % static_cast<int>(kLaneCount)), {place(i % 3)},
                              {place(i % 4)}));
    }
    executor.submit(std::move(fragment));
  }
  EXPECT_LE(ran, 50 * 40);
}

TEST(Executor, RecordsWhatATaskWaitedFor) {
  Timeline timeline(100);
  Executor executor(
      [&](const Task& ran) {
        if (ran.lane == Lane::disk_read) std::this_thread::sleep_for(std::chrono::milliseconds(5));
      },
      {}, timeline);
  executor.set_step(7);
  executor.wait(executor.submit(
      {task(Lane::disk_read, {}, {place(0)}), task(Lane::compute, {place(0)}, {})}));
  executor.drain(false);
  const std::vector<TimelineSpan> spans = timeline.spans();
  ASSERT_EQ(spans.size(), 2u);
  EXPECT_EQ(spans[1].waited_for, Lane::disk_read);
  EXPECT_EQ(spans[1].step, 7);
  EXPECT_GE(spans[1].start, spans[0].end);
}

}  // namespace
}  // namespace klotski
