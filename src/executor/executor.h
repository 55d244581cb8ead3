#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <random>
#include <span>
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
  // Whoever waits looks for its turn so long before it sleeps, and again when it was woken early.
  // Waking up takes as long as a short task; threads that look let those that compute go first.
  std::chrono::microseconds look_before_sleep{0};
};

// Carries tasks out: one worker a lane, each taking its lane's tasks in order, each task as soon as
// everything it waits for is done, or has begun where it waits for that by itself. Tasks may be
// added while others run.
class Executor {
 public:
  // Of one lane, in program order, none waiting for another.
  using Tasks = std::span<const Task* const>;
  // Carries out one task, or several that were joined.
  using Run = std::function<void(Tasks)>;
  // Sets a call's work going without waiting for it: true where there is something to set going.
  // Run follows, and waits. The lane's next calls begin before the one at hand is over, so that
  // nothing is idle between them. Empty: nothing begins early.
  using Begin = std::function<bool(Tasks)>;
  // Whether a task that has begun waits by itself until an earlier one, which has begun as well, is
  // over: it then begins before that. Asked as MayJoin is. Empty: never.
  using Awaits = std::function<bool(const Task& task, const Task& earlier)>;
  // Whether the lane's next task, which may begin too, is carried out in one call with those before
  // it. All of a call are done together, and are one span: they may differ in their expert only.
  // Asked under the executor's lock: it must be quick, and not throw. Empty: never.
  using MayJoin = std::function<bool(Tasks together, const Task& next)>;
  // Told of every task that ran, after it, by the lane's worker: when the task's call ran, and what
  // the task itself had to wait for.
  using Observe = std::function<void(const Task&, const TimelineSpan&)>;

  // Calls of a lane that have begun and are not over, at most. A copy beside the one at hand keeps
  // a link busy; what a device computes is a chain of short calls.
  static constexpr size_t kMostCopies = 2;
  static constexpr size_t kMostComputations = 12;

  struct Calls {
    Run run;
    MayJoin may_join{};
    Observe observe{};
    Begin begin{};
    Awaits awaits{};
  };

  Executor(Calls calls, Timeline& timeline, const ExecutorOptions& options = {});
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

  // Nothing is left to do: forgets what the timeline holds, and starts its clock again.
  void restart_clock();

  // A task has failed since the last recover().
  bool failed() const;
  // After a failure: waits until nothing runs, then takes tasks again.
  void recover();

 private:
  struct Node {
    Task task;
    int64_t step = 0;
    std::vector<TaskNumber> waits{};      // tasks, some of them done
    int64_t waits_for = 0;                // of these, not done
    std::vector<TaskNumber> waited_by{};  // tasks
    std::chrono::nanoseconds ready_at{};  // when the last task it waited for ended
    std::chrono::nanoseconds submitted_at{};
    Lane ready_by = Lane::compute;
    bool begun = false;
    bool done = false;
  };

  using Numbers = std::vector<TaskNumber>;

  // Rung, under the lock, for whom something has changed; those who look for it leave the lock
  // alone until then.
  struct alignas(64) Bell {  // a cache line or more of its own
    std::condition_variable wake;
    std::atomic<uint64_t> rung{0};

    void ring() {
      ++rung;
      wake.notify_all();
    }
  };
  Bell& bell_of(Lane lane) { return bells_[lane_index(lane)]; }
  void ring_all_lanes();

  void close();
  void work(Lane lane);
  Numbers pick(Lane lane);
  size_t join(const std::deque<TaskNumber>& queue, size_t begin);
  // A call on its way: its tasks, which stay where they are since only done ones are removed.
  struct Call {
    Numbers numbers;
    std::vector<const Task*> tasks;
    std::vector<std::optional<Lane>> waits;  // what each task had to wait for
    TimelineSpan span;
    bool begun = false;
    std::chrono::nanoseconds begun_at{};
    std::exception_ptr failure{};
  };
  bool may_begin(const Node& waiting);
  bool is_due(const Call& call);
  Call begun_call(std::unique_lock<std::mutex>& lock, const Numbers& numbers);
  void have_begun(const Numbers& numbers);
  void wake_if_it_may_begin(const Node& waiting);
  void run_call(std::unique_lock<std::mutex>& lock, Call& call);
  void carry_out(Call& call);
  void finish(TaskNumber number, std::chrono::nanoseconds at);
  // Returns when `ready`, which is asked under the lock.
  template <typename Ready>
  void wait_until(std::unique_lock<std::mutex>& lock, Bell& bell, const Ready& ready);
  void wake_for_choices(const std::deque<Call>& calls);
  void throw_if_failed() const;
  Node& node(TaskNumber number) { return nodes_[static_cast<size_t>(number - first_)]; }

  Calls calls_;
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
  std::array<Bell, kLaneCount> bells_;
  Bell done_;
  std::mt19937_64 random_;

  std::vector<std::thread> workers_;
};

}  // namespace klotski
