#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <random>
#include <thread>
#include <vector>

#include "schedule/dependencies.h"
#include "timeline/timeline.h"

namespace klotski {

struct ExecutorOptions {
  // Every lane takes any of its tasks that may run, instead of the first, after a random delay:
  // what was not declared as read or written then goes wrong. For tests.
  std::optional<uint64_t> stress_seed;
  std::chrono::microseconds stress_delay{200};  // at most
};

// Carries tasks out: one worker a lane, each taking its lane's tasks in order, each task as soon as
// everything it waits for is done. Tasks may be added while others run.
class Executor {
 public:
  using Run = std::function<void(const Task&)>;
  // Told of every task that ran, after it, by the lane's worker.
  using Observe = std::function<void(const Task&, const TimelineSpan&)>;

  Executor(Run run, Observe observe, Timeline& timeline, const ExecutorOptions& options = {});
  ~Executor();  // lets running tasks finish; the others are dropped
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // The step that spans of following tasks are counted to.
  void set_step(int64_t step);

  // The number of the last task of the fragment.
  TaskNumber submit(Fragment fragment);

  // Returns once the task is done. When a task has failed, all others that had not begun are given
  // up, and every wait throws the error of the first until recover().
  void wait(TaskNumber number);
  // Waits until nothing is left to do but, if they may go on, loads of weights.
  void drain(bool loads_may_go_on);

  // A task has failed since the last recover().
  bool failed() const;
  // After a failure: waits until nothing runs, then takes tasks again.
  void recover();

 private:
  struct Node {
    Task task;
    int64_t step = 0;
    int64_t waits_for = 0;                // tasks
    std::vector<TaskNumber> waited_by{};  // tasks
    std::chrono::nanoseconds ready_at{};  // when the last task it waited for ended
    std::chrono::nanoseconds submitted_at{};
    Lane ready_by = Lane::compute;
    bool done = false;
  };

  void close();
  void work(Lane lane);
  std::optional<TaskNumber> pick(Lane lane);
  void run_task(std::unique_lock<std::mutex>& lock, TaskNumber number);
  void finish(TaskNumber number, std::chrono::nanoseconds at);
  void throw_if_failed() const;
  Node& node(TaskNumber number) { return nodes_[static_cast<size_t>(number - first_)]; }

  Run run_;
  Observe observe_;
  Timeline& timeline_;
  ExecutorOptions options_;

  mutable std::mutex mutex_;  // guards all below
  bool closed_ = false;
  int64_t step_ = 0;
  std::exception_ptr error_;
  Dependencies dependencies_;
  std::deque<Node> nodes_;  // those before `first_` are done and gone
  TaskNumber first_ = 0;
  std::array<std::deque<TaskNumber>, kLaneCount> queues_;  // not begun, in program order
  std::array<std::chrono::nanoseconds, kLaneCount> lane_free_{};
  std::array<std::condition_variable, kLaneCount> lane_wakes_;
  std::condition_variable done_;
  std::mt19937_64 random_;

  std::vector<std::thread> workers_;
};

}  // namespace klotski
