#include "executor/executor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <map>
#include <mutex>
#include <random>
#include <set>
#include <shared_mutex>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/testing.h"
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

// Rules by which every lane begins tasks ahead where their kind allows it, `most` calls at a time.
LaneRules begin_ahead(size_t most = 2) {
  LaneRules lanes;
  for (const Lane lane : device_over_host().lanes()) lanes.most_begun.at(lane) = most;
  return lanes;
}

Resource place(int32_t number) { return {Place::hidden, number}; }

// A task at a time.
template <typename RunOne>
Executor::Run each(RunOne run_one) {
  return [run_one](Executor::Tasks tasks) {
    for (const Task* one : tasks) run_one(*one);
  };
}

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

// Random tasks of random kinds and priorities on random lanes, some of them withdrawn: in whatever
// order the executor runs, joins or begins them, each task reads the numbers of program order, and
// a withdrawn task writes nothing.
class RandomSchedules {
 public:
  explicit RandomSchedules(const ExecutorOptions& options)
      : lanes_(options.lanes),
        random_(options.stress_seed.value_or(9)),
        executor_({.run = [this](Executor::Tasks tasks) { run(tasks); },
                   .may_join =
                       [](Executor::Tasks together, const Task& next) {
                         return together.size() < 4 && next.bytes % 5 != 0;
                       },
                   .begin = [this](Executor::Tasks tasks) { begun_ += std::ssize(tasks); },
                   .finish =
                       [this](Executor::Tasks tasks) {
                         begun_ -= std::ssize(tasks);
                         run(tasks);
                       }},
                  timeline_, options, begin_ahead(3)) {}

  // Calls are held up while half of the schedules are submitted, so that lanes find enough queued
  // tasks to join however fast they run.
  void play(int schedules) {
    std::unique_lock held(calls_may_run_, std::defer_lock);
    for (int schedule = 0; schedule < schedules; ++schedule) {
      if (schedule % (2 * kHeldTogether) == 0) held.lock();
      if (schedule % (2 * kHeldTogether) == kHeldTogether) held.unlock();
      places_in_ = between(random_, 0, 1) == 0 ? 3 : 20;
      Fragment fragment;
      const int64_t size = between(random_, 1, 12);
      for (int64_t i = 0; i < size; ++i) fragment.push_back(random_task());
      const Fragment submitted = fragment;
      const TaskNumber last = executor_.submit(std::move(fragment));
      for (int64_t i = 0; i < size; ++i) {
        if (between(random_, 0, 2) == 0) {
          withdraw(submitted[static_cast<size_t>(i)], last - size + 1 + i);
        }
      }
      if (held.owns_lock()) continue;
      if (between(random_, 0, 3) == 0) executor_.wait(last);
      if (between(random_, 0, 20) == 0) drain();
    }
    if (held.owns_lock()) held.unlock();
    drain();
    EXPECT_EQ(memory_.mistakes, 0);
    EXPECT_EQ(begun_, 0);
    EXPECT_EQ(ran_ + withdrawn_, number_);
    EXPECT_GT(joined_, schedules / 100);
    EXPECT_GT(withdrawn_, schedules / 100);
  }

 private:
  static constexpr int32_t kPlaces = 6;
  static constexpr int kHeldTogether = 4;  // schedules

  std::vector<Resource> some_places(bool readable) {
    std::vector<Resource> chosen;
    for (int32_t p = 0; p < kPlaces; ++p) {
      const bool may = !readable || readable_[static_cast<size_t>(p)];
      if (may && between(random_, 0, places_in_) == 0) chosen.push_back(place(p));
    }
    return chosen;
  }

  Task random_task() {
    Task made = task_of(static_cast<Work>(between(random_, 0, kWorkCount - 1)),
                        lanes_[static_cast<size_t>(between(random_, 0, std::ssize(lanes_) - 1))],
                        some_places(true), some_places(false));
    made.bytes = static_cast<uint64_t>(++number_);
    if (brings_weights(made.work)) made.priority = static_cast<float>(between(random_, 0, 3)) / 2;
    std::vector<int64_t> reads;
    for (const Resource& resource : made.reads) {
      reads.push_back(last_writer_[static_cast<size_t>(resource.number)]);
    }
    for (const Resource& resource : made.writes) {
      last_writer_[static_cast<size_t>(resource.number)] = number_;
      readable_[static_cast<size_t>(resource.number)] = true;
    }
    const std::lock_guard lock(mutex_);
    expected_[made.bytes] = std::move(reads);
    return made;
  }

  // The places it would have written may not be read, unless another task has written them since.
  void withdraw(const Task& task, TaskNumber number) {
    if (!executor_.withdraw({{number}})) return;
    EXPECT_TRUE(brings_weights(task.work));
    EXPECT_FALSE(executor_.withdraw({{number}})) << "once";
    ++withdrawn_;
    for (const Resource& resource : task.writes) {
      const auto at = static_cast<size_t>(resource.number);
      if (last_writer_[at] == static_cast<int64_t>(task.bytes)) readable_[at] = false;
    }
    const std::lock_guard lock(mutex_);
    expected_.erase(task.bytes);
  }

  void run(Executor::Tasks tasks) {
    const std::shared_lock wait_while_held(calls_may_run_);
    joined_ += std::ssize(tasks) - 1;
    for (size_t i = 1; i < tasks.size(); ++i) EXPECT_LT(tasks[i - 1]->bytes, tasks[i]->bytes);
    // No task waits for another, so that any order will do.
    for (size_t i = tasks.size(); i > 0; --i) run_one(*tasks[i - 1]);
  }

  void run_one(const Task& ran) {
    std::vector<int64_t> expected;
    {
      const std::lock_guard lock(mutex_);
      expected = expected_.at(ran.bytes);  // not there: it was withdrawn
    }
    memory_.run(ran, static_cast<int64_t>(ran.bytes), expected);
    ++ran_;
  }

  void drain() {
    executor_.drain(false);
    const std::lock_guard lock(mutex_);
    expected_.clear();
  }

  std::vector<Lane> lanes_;
  std::mt19937_64 random_;
  Guarded memory_{kPlaces};
  std::vector<int64_t> last_writer_ = std::vector<int64_t>(kPlaces, 0);
  std::vector<bool> readable_ = std::vector<bool>(kPlaces, true);
  // A task uses a place with a probability of one in this many and one: in half of the schedules
  // tasks often wait for each other, in the others they can be joined.
  int64_t places_in_ = 3;
  int64_t number_ = 0;
  int64_t withdrawn_ = 0;
  std::atomic<int64_t> joined_ = 0;
  std::atomic<int64_t> begun_ = 0;
  std::atomic<int64_t> ran_ = 0;
  std::shared_mutex calls_may_run_;
  std::mutex mutex_;
  std::map<uint64_t, std::vector<int64_t>> expected_;  // numbers that a task reads, by Task::bytes
  Timeline timeline_{0};
  Executor executor_;
};

void run_random_schedules(int schedules, const ExecutorOptions& options) {
  RandomSchedules(options).play(trials(schedules));
}

TEST(Executor, TenThousandRandomSchedulesInOrder) { run_random_schedules(10000, {}); }

TEST(Executor, TenThousandRandomSchedulesReordered) {
  run_random_schedules(10000, {.stress_seed = 4, .stress_delay = std::chrono::microseconds(3)});
  run_random_schedules(2000, {.stress_seed = 5,
                              .stress_delay = std::chrono::microseconds(3),
                              .look_before_sleep = std::chrono::microseconds(5)});
}

TEST(Executor, AMistakeInTheDeclarationsIsNoticed) {
  // A reader that does not say so: reordered lanes show it sooner or later.
  Timeline timeline(0);
  std::atomic<int> value = 0;
  std::atomic<int> wrong = 0;
  {
    Executor executor({each([&](const Task& ran) {
                         if (ran.lane == Lane::kDiskRead) ++value;
                         if (ran.lane == Lane::kCompute && value != static_cast<int>(ran.bytes))
                           ++wrong;
                       }),
                       {},
                       {}},
                      timeline, {.stress_seed = 1, .stress_delay = std::chrono::microseconds(50)});
    for (int i = 1; i <= 200; ++i) {
      Task reader = task(Lane::kCompute, {}, {});
      reader.bytes = static_cast<uint64_t>(i);
      executor.submit({task(Lane::kDiskRead, {}, {place(0)}), reader});
    }
    executor.drain(false);
  }
  EXPECT_GT(wrong, 0);
}

TEST(Executor, AFailureStopsEverythingBehindItAndIsReported) {
  Timeline timeline(0);
  std::atomic<int> ran_after = 0;
  Executor executor({each([&](const Task& ran) {
                       if (ran.bytes == 1) fail(ErrorKind::internal, "the disk is broken");
                       if (ran.bytes == 2) ++ran_after;
                     }),
                     {},
                     {}},
                    timeline);
  Task failing = task(Lane::kDiskRead, {}, {place(0)});
  failing.bytes = 1;
  Task behind = task(Lane::kCompute, {place(0)}, {});
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
  const std::vector<Lane> lanes = ExecutorOptions().lanes;
  std::atomic<int> ran = 0;
  for (int trial = 0; trial < 50; ++trial) {
    Timeline timeline(0);
    Executor executor(
        {each([&](const Task&) { ++ran; }), [](Executor::Tasks, const Task&) { return true; }, {}},
        timeline, {.stress_seed = static_cast<uint64_t>(trial)});
    Fragment fragment;
    for (int i = 0; i < 40; ++i) {
      fragment.push_back(
          task(lanes[static_cast<size_t>(i) % lanes.size()], {place(i % 3)}, {place(i % 4)}));
    }
    executor.submit(std::move(fragment));
  }
  EXPECT_LE(ran, 50 * 40);
}

TEST(Executor, RecordsWhatATaskWaitedFor) {
  Timeline timeline(100);
  Executor executor({each([&](const Task& ran) {
                       if (ran.lane == Lane::kDiskRead)
                         std::this_thread::sleep_for(std::chrono::milliseconds(5));
                     }),
                     {},
                     {}},
                    timeline);
  executor.set_step(7);
  executor.wait(executor.submit(
      {task(Lane::kDiskRead, {}, {place(0)}), task(Lane::kCompute, {place(0)}, {})}));
  executor.drain(false);
  const std::vector<TimelineSpan> spans = timeline.spans();
  ASSERT_EQ(spans.size(), 2u);
  EXPECT_EQ(spans[1].waited_for, Lane::kDiskRead);
  EXPECT_EQ(spans[1].step, 7);
  EXPECT_GE(spans[1].start, spans[0].end);
}

// Experts of one layer behind a task that keeps their lane busy until all were submitted.
class Joining : public ::testing::Test {
 protected:
  using Calls = std::vector<std::vector<int32_t>>;  // the experts of each call

  static Task expert(int32_t number, std::vector<Resource> reads = {}) {
    Task made = task(Lane::kCompute, std::move(reads), {});
    made.work = Work::expert;
    made.unit = {UnitKind::expert, LayerId(0), ExpertId(number)};
    made.bytes = 10;
    made.fills = {place(9)};
    return made;
  }

  // Runs a fragment; experts join others if their number is below `first_alone`.
  void run(Fragment fragment, int32_t first_alone, const ExecutorOptions& options = {}) {
    std::promise<void> go;
    std::shared_future<void> gone = go.get_future().share();
    Executor executor({[&, gone](Executor::Tasks tasks) {
                         if (tasks[0]->work != Work::expert) return gone.wait();
                         calls.emplace_back();
                         for (const Task* one : tasks)
                           calls.back().push_back(one->unit.expert.value);
                         if (calls.back().back() == failing)
                           fail(ErrorKind::internal, "an expert is broken");
                       },
                       [&](Executor::Tasks together, const Task& next) {
                         return together[0]->work == Work::expert &&
                                next.unit.expert.value < first_alone;
                       },
                       [&](const Task& ran, const TimelineSpan&) {
                         if (ran.work == Work::expert) observed.push_back(ran.unit.expert.value);
                       }},
                      timeline, options);
    Task busy = task(Lane::kCompute, {}, {place(9)});
    fragment.insert(fragment.begin(), busy);
    executor.submit(std::move(fragment));
    go.set_value();
    executor.drain(false);
  }

  int32_t failing = -1;
  Timeline timeline{1000};
  Calls calls;
  std::vector<int32_t> observed;
};

TEST_F(Joining, AllThatMayBeginRunOnceTogetherInOrder) {
  run({expert(0), expert(1), expert(2), expert(3)}, 3);
  EXPECT_EQ(calls, Calls({{0, 1, 2}, {3}}));
  EXPECT_EQ(observed, std::vector<int32_t>({0, 1, 2, 3}));
  const std::vector<TimelineSpan> spans = timeline.spans();
  ASSERT_EQ(spans.size(), 3u);
  EXPECT_TRUE(spans[1].is_expert_work);
  EXPECT_EQ(spans[1].expert, -1);
  EXPECT_EQ(spans[1].bytes, 30u);
  EXPECT_EQ(spans[2].expert, 3);
  EXPECT_EQ(spans[2].bytes, 10u);
}

TEST_F(Joining, NothingIsSkipped) {
  // Expert 2 reads a place that expert 1 writes.
  Task writer = expert(1);
  writer.writes = {place(1)};
  run({expert(0), writer, expert(2, {place(1)}), expert(3)}, 9);
  EXPECT_EQ(calls, Calls({{0, 1}, {2, 3}}));
  calls.clear();
  run({expert(0), expert(8), expert(1), expert(2)}, 8);
  EXPECT_EQ(calls, Calls({{0}, {8, 1, 2}}));
}

TEST_F(Joining, WhatHasNotArrivedIsNotWaitedFor) {
  std::promise<void> arrive;
  std::vector<size_t> sizes;
  Executor executor({[&](Executor::Tasks tasks) {
                       if (tasks[0]->lane == Lane::kDiskRead) return arrive.get_future().wait();
                       sizes.push_back(tasks.size());
                     },
                     [](Executor::Tasks, const Task&) { return true; },
                     {}},
                    timeline);
  executor.submit({task(Lane::kDiskRead, {}, {place(1)})});
  const TaskNumber ready = executor.submit({expert(0)});
  executor.submit({expert(1, {place(1)}), expert(2)});
  executor.wait(ready);
  arrive.set_value();
  executor.drain(false);
  EXPECT_EQ(sizes, std::vector<size_t>({1, 2}));
}

TEST_F(Joining, AFailureIsThatOfAllOfTheCall) {
  failing = 2;
  EXPECT_THROW(run({expert(0), expert(1), expert(2), expert(3)}, 3), Error);
  EXPECT_EQ(calls, Calls({{0, 1, 2}}));
  EXPECT_TRUE(observed.empty());
  EXPECT_EQ(timeline.spans().size(), 1u);
}

TEST_F(Joining, EachTaskIsObservedWithItsOwnWait) {
  // The first comes late from disk; the second was there all the time.
  std::vector<std::optional<Lane>> waits;
  Executor executor({each([&](const Task& ran) {
                       if (ran.lane == Lane::kDiskRead)
                         std::this_thread::sleep_for(std::chrono::milliseconds(5));
                     }),
                     [](Executor::Tasks, const Task&) { return true; },
                     [&](const Task& ran, const TimelineSpan& span) {
                       if (ran.lane == Lane::kCompute) waits.push_back(span.waited_for);
                     }},
                    timeline);
  executor.submit({task(Lane::kDiskRead, {}, {place(1)}), expert(0, {place(1)}), expert(1)});
  executor.drain(false);
  EXPECT_EQ(waits, std::vector<std::optional<Lane>>({Lane::kDiskRead, std::nullopt}));
  const std::vector<TimelineSpan> spans = timeline.spans();
  ASSERT_EQ(spans.size(), 2u);
  EXPECT_EQ(spans[1].waited_for, Lane::kDiskRead);
}

TEST_F(Joining, UnderStressEveryTaskRunsOnceInCallsOfManySizes) {
  std::set<size_t> sizes;
  for (uint64_t seed = 0; seed < 50; ++seed) {
    calls.clear();
    Fragment fragment;
    for (int32_t i = 0; i < 12; ++i) fragment.push_back(expert(i));
    run(std::move(fragment), 9,
        {.stress_seed = seed, .stress_delay = std::chrono::microseconds(1)});
    std::vector<int32_t> all;
    for (const std::vector<int32_t>& call : calls) {
      sizes.insert(call.size());
      EXPECT_TRUE(std::is_sorted(call.begin(), call.end()));
      all.insert(all.end(), call.begin(), call.end());
    }
    std::sort(all.begin(), all.end());
    ASSERT_EQ(all, std::vector<int32_t>({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}));
  }
  EXPECT_GT(sizes.size(), 3u);
}

// Copies that a device makes by itself: the next copy begins before the one at hand is waited for.
TEST(ExecutorBegins, TheNextCallEarlyAndInOrder) {
  Timeline timeline(0);
  std::vector<std::string> happened;
  std::promise<void> submitted;
  Executor executor({.run = [](Executor::Tasks) { ADD_FAILURE() << "loads begin ahead"; },
                     .begin =
                         [&](Executor::Tasks tasks) {
                           if (tasks[0]->bytes == 0) submitted.get_future().wait();
                           happened.push_back("begin " + std::to_string(tasks[0]->bytes));
                         },
                     .finish =
                         [&](Executor::Tasks tasks) {
                           happened.push_back("finish " + std::to_string(tasks[0]->bytes));
                         }},
                    timeline, {}, begin_ahead());
  for (uint64_t i = 0; i < 3; ++i) {
    Task copy = task_of(Work::load, Lane::kToDevice, {}, {place(static_cast<int32_t>(i))});
    copy.bytes = i;
    executor.submit({copy});
  }
  submitted.set_value();
  executor.drain(false);
  EXPECT_EQ(happened, std::vector<std::string>(
                          {"begin 0", "begin 1", "finish 0", "begin 2", "finish 1", "finish 2"}));
}

// A task that waits for the call at hand does not begin before it is over.
TEST(ExecutorBegins, NothingThatHasToWait) {
  Timeline timeline(0);
  std::vector<std::string> happened;
  Executor executor({.run = {},
                     .begin = [&](Executor::Tasks) { happened.emplace_back("begin"); },
                     .finish = [&](Executor::Tasks) { happened.emplace_back("finish"); }},
                    timeline, {}, begin_ahead());
  executor.submit({task_of(Work::load, Lane::kToDevice, {}, {place(0)}),
                   task_of(Work::load, Lane::kToDevice, {}, {place(0)})});
  executor.drain(false);
  EXPECT_EQ(happened, std::vector<std::string>({"begin", "finish", "begin", "finish"}));
}

// A call that cannot begin fails like a call that cannot run; calls that have begun are waited for
// nevertheless.
TEST(ExecutorBegins, AFailureLeavesNothingUnderWay) {
  Timeline timeline(0);
  std::atomic<int> begun{0};
  std::atomic<int> waited_for{0};
  Executor executor({.run = {},
                     .begin =
                         [&](Executor::Tasks tasks) {
                           if (tasks[0]->bytes == 3)
                             fail(ErrorKind::device_lost, "the copy failed");
                           ++begun;
                         },
                     .finish = [&](Executor::Tasks) { ++waited_for; }},
                    timeline, {}, begin_ahead());
  Fragment copies;
  for (uint64_t i = 0; i < 6; ++i) {
    copies.push_back(task_of(Work::load, Lane::kToDevice, {}, {place(static_cast<int32_t>(i))}));
    copies.back().bytes = i;
  }
  const TaskNumber last = executor.submit(std::move(copies));
  EXPECT_THROW(executor.wait(last), Error);
  executor.recover();
  EXPECT_EQ(begun, waited_for);
  EXPECT_EQ(begun, 3);
  executor.wait(executor.submit({task_of(Work::load, Lane::kToDevice, {}, {place(0)})}));
  EXPECT_EQ(waited_for, 4);
}

// A device's task waits by itself for a task of the CPU: it begins as soon as that has begun, and
// is waited for when it may be over.
TEST(ExecutorBegins, WhatWaitsByItself) {
  Timeline timeline(100);
  std::mutex mutex;
  std::vector<std::string> happened;
  const auto note = [&](const std::string& what, const Task& task) {
    const std::lock_guard lock(mutex);
    happened.push_back(what + " " + std::to_string(task.bytes));
  };
  std::promise<void> all_begun;
  std::future<void> may_end = all_begun.get_future();
  Executor executor({.run =
                         [&](Executor::Tasks tasks) {
                           if (tasks[0]->lane == Lane::kCpu) may_end.wait();
                           note("run", *tasks[0]);
                         },
                     .begin =
                         [&](Executor::Tasks tasks) {
                           note("begin", *tasks[0]);
                           if (tasks[0]->bytes == 4) all_begun.set_value();
                         },
                     .finish = [&](Executor::Tasks tasks) { note("finish", *tasks[0]); }},
                    timeline, {}, begin_ahead(3));
  Fragment fragment = {task_of(Work::expert_on_cpu, Lane::kCpu, {}, {place(1)}),
                       task_of(Work::rows_up, Lane::kRowsUp, {place(1)}, {place(2)}),
                       task_of(Work::scatter, Lane::kCompute, {place(2)}, {place(3)}),
                       task_of(Work::combine, Lane::kCompute, {place(3)}, {place(4)}),
                       task_of(Work::logits, Lane::kCompute, {place(4)}, {place(5)})};
  for (size_t i = 0; i < fragment.size(); ++i) fragment[i].bytes = i + 1;
  fragment[4].bytes = 9;
  executor.submit(std::move(fragment));
  executor.drain(false);
  EXPECT_EQ(happened, std::vector<std::string>({"begin 2", "begin 3", "begin 4", "run 1",
                                                "finish 2", "finish 3", "finish 4", "run 9"}));
  // A task that waited is busy from when it could go on.
  const std::vector<TimelineSpan> spans = timeline.spans();
  ASSERT_EQ(spans.size(), 5u);
  for (size_t i = 1; i < spans.size(); ++i) EXPECT_GE(spans[i].start, spans[i - 1].end);
  EXPECT_EQ(spans[1].waited_for, Lane::kCpu);
}

// Where a lane has to wait for two tasks itself, the last of them sets the next task going.
TEST(ExecutorBegins, WhenAllThatItDoesNotAwaitIsOver) {
  Timeline timeline(0);
  std::promise<void> computing;
  std::promise<void> begun;
  LaneRules lanes;
  lanes.most_begun.at(Lane::kRowsUp) = 1;
  Executor executor({.run =
                         [&](Executor::Tasks tasks) {
                           if (tasks[0]->lane == Lane::kToDevice) {
                             computing.get_future().wait();
                             std::this_thread::sleep_for(std::chrono::milliseconds(5));
                           }
                           if (tasks[0]->lane != Lane::kCpu) return;
                           computing.set_value();
                           const auto began = begun.get_future().wait_for(std::chrono::seconds(20));
                           EXPECT_EQ(began, std::future_status::ready);
                         },
                     .begin = [&](Executor::Tasks) { begun.set_value(); },
                     .finish = [](Executor::Tasks) {}},
                    timeline, {}, lanes);
  executor.submit({task_of(Work::expert_on_cpu, Lane::kCpu, {}, {place(1)}),
                   task_of(Work::load, Lane::kToDevice, {}, {place(2)}),
                   task_of(Work::rows_up, Lane::kRowsUp, {place(1), place(2)}, {})});
  executor.drain(false);
}

// Tasks that have begun are waited for, tasks that have not are given up.
TEST(ExecutorBegins, WhatWaitsForAFailureEnds) {
  for (int trial = 0; trial < 50; ++trial) {
    Timeline timeline(0);
    std::atomic<int> begun{0};
    std::atomic<int> waited_for{0};
    Executor executor({.run =
                           [&](Executor::Tasks tasks) {
                             if (tasks[0]->lane != Lane::kCpu) return;
                             while (begun < trial % 3) std::this_thread::yield();
                             fail(ErrorKind::internal, "the sum failed");
                           },
                       .begin = [&](Executor::Tasks) { ++begun; },
                       .finish = [&](Executor::Tasks) { ++waited_for; }},
                      timeline, {}, begin_ahead());
    const TaskNumber last =
        executor.submit({task_of(Work::expert_on_cpu, Lane::kCpu, {}, {place(1)}),
                         task_of(Work::rows_up, Lane::kRowsUp, {place(1)}, {place(2)}),
                         task_of(Work::scatter, Lane::kCompute, {place(2)}, {place(3)}),
                         task_of(Work::combine, Lane::kCompute, {place(3)}, {})});
    EXPECT_THROW(executor.wait(last), Error);
    executor.recover();
    EXPECT_EQ(begun, waited_for);
    executor.wait(executor.submit({task(Lane::kCompute, {place(3)}, {})}));
  }
}

// A call that has begun reads what another lane still writes: it ends after that, though a third
// lane has failed.
TEST(ExecutorBegins, WhatHasBegunOutlivesTheFailureOfAnotherLane) {
  Timeline timeline(0);
  std::atomic<bool> begun{false};
  std::atomic<bool> failing{false};
  std::atomic<bool> written{false};
  std::atomic<int> finished{0};
  const auto wait_for = [](const std::atomic<bool>& flag) {
    while (!flag) std::this_thread::yield();
  };
  Executor executor({.run =
                         [&](Executor::Tasks tasks) {
                           if (tasks[0]->lane == Lane::kDiskRead) {
                             wait_for(begun);
                             failing = true;
                             fail(ErrorKind::internal, "the read failed");
                           }
                           wait_for(failing);
                           std::this_thread::sleep_for(std::chrono::milliseconds(20));
                           written = true;
                         },
                     .begin = [&](Executor::Tasks) { begun = true; },
                     .finish =
                         [&](Executor::Tasks) {
                           EXPECT_TRUE(written);
                           ++finished;
                         }},
                    timeline, {}, begin_ahead());
  const TaskNumber last =
      executor.submit({task_of(Work::expert_on_cpu, Lane::kCpu, {}, {place(1)}),
                       task_of(Work::rows_up, Lane::kRowsUp, {place(1)}, {place(2)}),
                       task_of(Work::fetch, Lane::kDiskRead, {}, {place(3)})});
  EXPECT_THROW(executor.wait(last), Error);
  executor.recover();
  EXPECT_EQ(finished, 1);
}

// Loads on one lane behind one that keeps it busy until all were submitted.
class WaitingLoads : public ::testing::Test {
 protected:
  static Task load(int32_t slot, float priority = 0, std::vector<Resource> reads = {}) {
    Task made = task_of(Work::load, Lane::kToDevice, std::move(reads), {place(slot)});
    made.slot = slot;
    made.priority = priority;
    return made;
  }

  void SetUp() override {
    executor.submit({load(100)});
    started.get_future().wait();
  }

  // The lane goes on. Returns the slots in the order in which they were loaded.
  std::vector<int32_t> order() {
    go.set_value();
    executor.drain(false);
    EXPECT_EQ(loaded.at(0), 100);
    return {loaded.begin() + 1, loaded.end()};
  }

  Timeline timeline{0};
  std::promise<void> started;
  std::promise<void> go;
  std::shared_future<void> gone = go.get_future().share();
  std::vector<int32_t> loaded;
  Executor executor{{.run =
                         [this](Executor::Tasks tasks) {
                           if (tasks[0]->lane != Lane::kToDevice) return;
                           if (tasks[0]->slot == 100) {
                             started.set_value();
                             gone.wait();
                           }
                           loaded.push_back(tasks[0]->slot);
                         }},
                    timeline};
};

TEST_F(WaitingLoads, KeepProgramOrderWithOnePriority) {
  executor.submit({load(3), load(1), load(2)});
  EXPECT_EQ(order(), std::vector<int32_t>({3, 1, 2}));
}

TEST_F(WaitingLoads, AreOvertakenByDemand) {
  executor.submit({load(1, 0.25), load(2, 0.5), load(3, 0.25)});
  executor.submit({load(4, 2), load(5, 2), load(6, 0.5)});
  EXPECT_EQ(order(), std::vector<int32_t>({4, 5, 2, 6, 1, 3}));
}

// The second load into slot 1 has the highest priority and waits for the first.
TEST_F(WaitingLoads, GoOnWhileAHigherPriorityHasToWait) {
  executor.submit({load(1, 0), load(1, 2), load(3, 2), load(2, 1)});
  EXPECT_EQ(order(), std::vector<int32_t>({2, 1, 1, 3})) << "within a priority none is skipped";
}

TEST_F(WaitingLoads, NeverLandOnceTheyAreWithdrawn) {
  const TaskNumber last = executor.submit({load(1), load(2), load(3)});
  EXPECT_TRUE(executor.withdraw({{last - 1}}));
  EXPECT_FALSE(executor.withdraw({{last - 1}}));
  executor.wait(last - 1);
  EXPECT_FALSE(executor.withdraw({{last - 3}})) << "has begun";
  EXPECT_EQ(order(), std::vector<int32_t>({1, 3}));
  EXPECT_FALSE(executor.withdraw({{last}})) << "is over";
  EXPECT_THROW(executor.submit({task(Lane::kCompute, {place(2)}, {})}), Error);
  executor.wait(executor.submit({load(2), task(Lane::kCompute, {place(2)}, {})}));
}

TEST_F(WaitingLoads, StayWhereSomebodyNeedsThem) {
  const TaskNumber last = executor.submit({load(1), task(Lane::kCompute, {place(1)}, {}), load(2)});
  EXPECT_FALSE(executor.withdraw({{last - 2}}));
  EXPECT_FALSE(executor.withdraw({{last - 1}})) << "brings no weights";
  EXPECT_EQ(order(), std::vector<int32_t>({1, 2}));
}

// Host memory may be filled for nothing, but nothing is loaded from a slot that was not filled.
TEST_F(WaitingLoads, AreWithdrawnBeforeTheirFetch) {
  const TaskNumber last = executor.submit(
      {task_of(Work::fetch, Lane::kDiskRead, {place(100)}, {place(9)}), load(1, 0, {place(9)})});
  EXPECT_FALSE(executor.withdraw({{last - 1}}));
  EXPECT_TRUE(executor.withdraw({{last}}));
  EXPECT_TRUE(executor.withdraw({{last - 1}}));
  EXPECT_EQ(order(), std::vector<int32_t>());
}

// A load and what settles it go together or not at all.
TEST_F(WaitingLoads, AreWithdrawnWithWhatDependsOnThem) {
  const TaskNumber last =
      executor.submit({load(1), task_of(Work::settle, Lane::kDiskRead, {place(1)}, {place(1)}),
                       task(Lane::kCompute, {place(2)}, {})});
  EXPECT_TRUE(executor.withdraw({{last - 2, last - 1}}));
  const TaskNumber needed =
      executor.submit({load(1), task_of(Work::settle, Lane::kDiskRead, {place(1)}, {place(1)}),
                       task(Lane::kCompute, {place(1)}, {})});
  EXPECT_FALSE(executor.withdraw({{needed - 2, needed - 1}})) << "the settled expert is used";
  EXPECT_EQ(order(), std::vector<int32_t>({1}));
}

// The next task that fills the slot of a withdrawn load waits for all readers of the slot's former
// unit.
TEST_F(WaitingLoads, LeaveTheOrderToThoseBehind) {
  std::promise<void> may_end;
  std::atomic<bool> read = false;
  std::atomic<bool> early = false;
  Executor slow({.run =
                     [&](Executor::Tasks tasks) {
                       if (tasks[0]->lane == Lane::kCompute) {
                         may_end.get_future().wait();
                         read = true;
                       } else if (!read) {
                         early = true;
                       }
                     }},
                timeline);
  const TaskNumber last = slow.submit({task(Lane::kCompute, {place(1)}, {}), load(1)});
  EXPECT_TRUE(slow.withdraw({{last}}));
  slow.submit({load(1)});
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  may_end.set_value();
  slow.drain(false);
  EXPECT_FALSE(early);
  EXPECT_TRUE(order().empty());
}

TEST_F(WaitingLoads, AloneHaveAPriority) {
  Task compute = task(Lane::kCompute, {}, {});
  compute.priority = 1;
  EXPECT_THROW(executor.submit({load(1), compute}), Error);
  EXPECT_EQ(order(), std::vector<int32_t>({1})) << "what came before it is carried out";
}

}  // namespace
}  // namespace klotski
