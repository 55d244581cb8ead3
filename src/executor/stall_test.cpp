// Tasks that never end.

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/thread_pool.h"
#include "executor/executor.h"
#include "schedule/testing.h"

namespace klotski {
namespace {

// An executor whose loads come to an end only when the test lets them.
class StalledLane : public ::testing::Test {
 protected:
  ~StalledLane() override { let_go(); }

  void let_go() {
    if (!std::exchange(let_go_, true)) go.set_value();
  }
  Executor& start(Executor::Calls calls, const LaneRules& lanes = {},
                  std::chrono::milliseconds limit = std::chrono::milliseconds(100)) {
    ExecutorOptions options;
    options.stall_limit = limit;
    options.tell_slow = [this](const std::string& text) { told.push_back(text); };
    executor_ = std::make_unique<Executor>(std::move(calls), timeline_, options, lanes);
    return *executor_;
  }
  Executor& start() {
    return start({.run = [this](Executor::Tasks tasks) {
      ++run;
      if (tasks[0]->lane == Lane::kToDevice) gone.wait();
    }});
  }
  static Task load() {
    Task load = task_of(Work::load, Lane::kToDevice, {}, {{Place::slot, 3, UnitKind::expert}});
    load.unit = {UnitKind::expert, LayerId(5), ExpertId(7)};
    return load;
  }
  // A load, and the computation that waits for it.
  static TaskNumber submit(Executor& executor) {
    return executor.submit({load(), task_of(Work::expert, Lane::kCompute, load().writes, {})});
  }

  std::vector<std::string> told;
  std::atomic<int> run{0};

  ThreadPool pool{2};
  std::promise<void> go;
  std::shared_future<void> gone = go.get_future().share();

 private:
  bool let_go_ = false;
  Timeline timeline_{0};
  std::unique_ptr<Executor> executor_;  // last: its end waits for tasks, which use the others
};

std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::device_lost);
    return error.what();
  }
  return {};
}

TEST_F(StalledLane, EndsEveryWaitAndIsNamed) {
  Executor& executor = start();
  const TaskNumber last = submit(executor);
  const std::string message = message_of([&] { executor.wait(last); });
  EXPECT_NE(message.find("no task has ended for "), std::string::npos) << message;
  EXPECT_NE(message.find("at work: [to device load layer 5 expert 7 "), std::string::npos)
      << message;
  EXPECT_NE(message.find("waiting: [compute expert "), std::string::npos) << message;
  EXPECT_TRUE(executor.stalled());
  EXPECT_EQ(message_of([&] { executor.wait(last); }), message);
  EXPECT_EQ(message_of([&] { executor.drain(false); }), message);
  EXPECT_EQ(message_of([&] { executor.recover(); }), message);
}

TEST_F(StalledLane, IsToldOnceBefore) {
  Executor& executor = start();
  const TaskNumber last = submit(executor);
  const std::string message = message_of([&] { executor.wait(last); });
  ASSERT_EQ(told.size(), 1U);
  EXPECT_NE(told[0].find("; after 0.1 s this is an error"), std::string::npos) << told[0];
  EXPECT_NE(told[0].find("at work: [to device load "), std::string::npos) << told[0];
}

// A load that ends late does no harm: the tasks that waited for the load were given up.
TEST_F(StalledLane, ThatEndsAfterAllRecovers) {
  Executor& executor = start();
  const TaskNumber last = submit(executor);
  message_of([&] { executor.wait(last); });
  let_go();
  while (executor.stalled()) std::this_thread::yield();
  executor.recover();
  EXPECT_EQ(run, 1);
  executor.wait(submit(executor));
  EXPECT_EQ(run, 3);
}

// Nobody waits for a load that was made ahead, until the executor is to stop.
TEST_F(StalledLane, IsFoundByWhoeverStopsTheExecutor) {
  Executor& executor = start();
  executor.submit({load()});
  executor.drain(/*loads_may_go_on=*/true);
  while (run == 0) std::this_thread::yield();
  EXPECT_FALSE(executor.stalled());
  EXPECT_FALSE(executor.stop());
  EXPECT_TRUE(executor.stalled());
  EXPECT_EQ(told.size(), 1U);
  let_go();
  while (executor.stalled()) std::this_thread::yield();
  EXPECT_TRUE(executor.stop());
}

TEST_F(StalledLane, IsNotTakenForOneThatWaits) {
  Executor& executor = start();
  EXPECT_TRUE(executor.stop());
  EXPECT_EQ(run, 0);
}

TEST_F(StalledLane, IsFoundWhileAFailureIsRecoveredFrom) {
  std::atomic<bool> loading = false;
  Executor& executor = start({.run = [&](Executor::Tasks tasks) {
    if (tasks[0]->lane == Lane::kToDevice) {
      loading = true;
      return gone.wait();
    }
    while (!loading) std::this_thread::yield();
    fail(ErrorKind::bad_model, "an expert is broken");
  }});
  executor.submit({task_of(Work::load, Lane::kToDevice, {}, {})});
  const TaskNumber last = executor.submit({task_of(Work::expert, Lane::kCompute, {}, {})});
  EXPECT_THROW(executor.wait(last), Error);
  EXPECT_FALSE(executor.stalled());
  EXPECT_NE(message_of([&] { executor.recover(); }), "");
  EXPECT_TRUE(executor.stalled());
}

TEST_F(StalledLane, ThatBeginsAheadIsFoundToo) {
  LaneRules lanes;
  lanes.most_begun.at(Lane::kRowsUp) = 2;
  Executor& executor = start({.run = [](Executor::Tasks) {},
                              .begin = [this](Executor::Tasks) { gone.wait(); },
                              .finish = [](Executor::Tasks) {}},
                             lanes);
  const TaskNumber last = executor.submit({task_of(Work::rows_up, Lane::kRowsUp, {}, {})});
  const std::string message = message_of([&] { executor.wait(last); });
  EXPECT_NE(message.find("at work: [rows up "), std::string::npos) << message;
  EXPECT_TRUE(executor.stalled());
}

TEST_F(StalledLane, MayBeAThreadOfAPool) {
  Executor& executor = start({.run = [&](Executor::Tasks) {
    pool.parallel_for(2, [&](int64_t, int64_t) { gone.wait(); });
  }});
  const TaskNumber last = executor.submit({task_of(Work::expert, Lane::kCompute, {}, {})});
  EXPECT_NE(message_of([&] { executor.wait(last); }), "");
}

TEST_F(StalledLane, WithoutALimitIsWaitedFor) {
  Executor& executor = start({.run = [this](Executor::Tasks) { gone.wait(); }}, {}, {});
  const TaskNumber last = submit(executor);
  std::thread later([this] {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    let_go();
  });
  executor.wait(last);
  later.join();
  EXPECT_TRUE(told.empty());
}

}  // namespace
}  // namespace klotski
