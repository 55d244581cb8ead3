#pragma once

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
#include <string>
#include <thread>
#include <vector>

#include "base/stall_watch.h"
#include "hardware/machine.h"
#include "schedule/dependencies.h"
#include "schedule/lane_queue.h"
#include "timeline/timeline.h"

namespace klotski {

struct ExecutorOptions {
  // Lanes that get a worker each: the lanes of the machine that the schedule is for.
  std::vector<Lane> lanes = device_over_host().lanes();
  // Seed of random delays, after which a lane takes any of its tasks that may run, not only the
  // first. A place that a task uses without declaring it then shows as a wrong result. For tests.
  std::optional<uint64_t> stress_seed;
  std::chrono::microseconds stress_delay{200};  // the longest random delay
  // Time that a waiting thread spins before it sleeps, and again when it was woken early. Waking up
  // takes as long as a short task; spinning threads yield to those that compute.
  std::chrono::microseconds look_before_sleep{0};
  // Time without the end of any task after which waits for tasks fail; zero: they do not.
  std::chrono::nanoseconds stall_limit = std::chrono::minutes(10);
  // Told at half of that time, by the thread that waits, what every lane does.
  std::function<void(const std::string&)> tell_slow{};
};

// Carries tasks out: one worker a lane, each taking its lane's tasks in the order of their queue
// (lane_queue.h), each task as soon as its edges allow it (dependencies.h). Tasks may be added
// while others run.
class Executor {
 public:
  // Tasks of one lane, in program order, none waiting for another.
  using Tasks = std::span<const Task* const>;
  // Carries out one task, or several that were joined.
  using Run = std::function<void(Tasks)>;
  // Replace Run for tasks that begin ahead (Dependencies::begins_ahead): Begin sets their work
  // going without waiting for it, Finish waits for it. The lane's next calls begin before the one
  // at hand is over, so that nothing is idle between them.
  using Begin = std::function<void(Tasks)>;
  using Finish = std::function<void(Tasks)>;
  // Whether the lane's next task, which may begin too, joins the call of the tasks before it. All
  // tasks of a call are done together, and are one span: they may differ in their expert only.
  // Asked under the executor's lock: it must be quick, and not throw. Empty: never.
  using MayJoin = std::function<bool(Tasks together, const Task& next)>;
  // Told of every task that ran, after it, by the lane's worker: when the task's call ran, and
  // which lane the task itself had to wait for.
  using Observe = std::function<void(const Task&, const TimelineSpan&)>;

  struct Calls {
    Run run;
    MayJoin may_join{};
    Observe observe{};
    Begin begin{};  // `begin` and `finish` are needed where a lane begins tasks ahead
    Finish finish{};
  };

  Executor(Calls calls, Timeline& timeline, const ExecutorOptions& options = {},
           const LaneRules& lanes = {});
  // Lets running tasks finish, also where the executor has stalled; all other tasks are dropped.
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // The step that spans of following tasks are counted to.
  void set_step(int64_t step);

  // The number of the last task of the fragment.
  TaskNumber submit(Fragment fragment);

  // Takes back tasks that bring weights and have not begun, in program order, so that they never
  // will. Their slots then hold whatever they held before, and may not be read until other tasks
  // have filled them (submit() fails otherwise). False, and all stay as they are: one has begun, or
  // another task that was not withdrawn depends on one. A load is withdrawn before the fetch that
  // it reads from, or with it.
  bool withdraw(std::span<const TaskNumber> numbers);

  // Returns once the task is done. When a task has failed, all others that had not begun are given
  // up, and every wait throws the error of the first until recover(). Where no task has ended for
  // the limit, this and all other waits throw device_lost.
  void wait(TaskNumber number);
  // Waits until nothing is left to do but, if they may go on, loads of weights.
  void drain(bool loads_may_go_on);

  // Clears the timeline and starts its clock again; nothing may be left to do.
  void restart_clock();

  // Whether a task has failed since the last recover().
  bool failed() const;
  // After a failure: waits until nothing runs, then takes tasks again. Throws the failure where a
  // lane has stalled.
  void recover();
  // Whether a wait has failed by the limit and a lane is at work still.
  bool stalled() const;
  // Takes no more tasks, and returns when the calls that have begun are over; false where one never
  // ends. The executor's end waits for that call, unless it is abandoned.
  [[nodiscard]] bool stop();
  // Leaves the threads alone, to which all that they use belongs from now on: the executor must
  // never end.
  void abandon();

 private:
  struct Node {
    Task task;
    int64_t step = 0;
    bool begins_ahead = false;
    int64_t waits_for = 0;                // earlier tasks that it depends on and that are not done
    int64_t held_by = 0;                  // tasks among these that keep it from beginning
    std::vector<Edge> waited_by{};        // the later tasks, each with when it may begin
    std::chrono::nanoseconds ready_at{};  // when the last task it waited for ended
    std::chrono::nanoseconds submitted_at{};
    Lane ready_by{};
    bool begun = false;
    bool withdrawn = false;
    bool done = false;
  };

  using Numbers = std::vector<TaskNumber>;

  bool may_withdraw(std::span<const TaskNumber> numbers);

  // A signal to a thread that something has changed for it, given under the lock. A spinning thread
  // takes the lock only after the bell has rung.
  struct alignas(64) Bell {  // a cache line or more of its own
    std::condition_variable wake;
    std::atomic<uint64_t> rung{0};

    void ring() {
      ++rung;
      wake.notify_all();
    }
  };
  void ring_all_lanes();

  void close();
  // The work of one lane's thread.
  struct Queue {
    Lane lane;
    LaneQueue tasks{};                // tasks that have not begun
    std::chrono::nanoseconds free{};  // when its last call ended
    // Tasks of the call that the lane carries out, none where it waits; its thread keeps them.
    Tasks at_work{};
    Bell bell{};
  };
  Queue& queue_of(Lane lane);

  void add(Task task);
  void work(Queue& of_lane);
  Numbers pick(Queue& of_lane);
  std::optional<size_t> first_that_may_begin(const LaneQueue& queue);
  size_t join(const LaneQueue& queue, size_t begin);
  // A call that a lane carries out. The addresses in `tasks` stay valid: only tasks that are done
  // leave nodes_.
  struct Call {
    Numbers numbers;
    std::vector<const Task*> tasks;
    std::vector<std::optional<Lane>> waits;  // the lane that each task had to wait for
    TimelineSpan span;
    bool begun = false;
    std::chrono::nanoseconds begun_at{};
    std::exception_ptr failure{};
  };
  bool is_due(const Call& call);
  Call begun_call(std::unique_lock<std::mutex>& lock, const Numbers& numbers);
  void have_begun(const Numbers& numbers);
  void let_go(Node& waiting);
  void run_call(std::unique_lock<std::mutex>& lock, Call& call);
  void carry_out(Call& call);
  void finish(TaskNumber number, std::chrono::nanoseconds at);
  void forget_done();
  void release_later(TaskNumber number, std::chrono::nanoseconds at);
  // Returns when `ready`, which is asked under the lock; `sleep` returns when the bell has rung, or
  // before.
  template <typename Ready, typename Sleep>
  void wait_until(std::unique_lock<std::mutex>& lock, const Bell& bell, const Ready& ready,
                  const Sleep& sleep);
  // Returns when `ready`; throws where tasks have stalled meanwhile.
  template <typename Ready>
  void wait_for_tasks(std::unique_lock<std::mutex>& lock, const Ready& ready);
  void look_after_tasks(std::unique_lock<std::mutex>& lock, StallWatch& watch);
  std::string describe_lanes();
  bool at_work() const;
  void wake_sleepers(const std::deque<Call>& calls);
  void throw_if_failed() const;
  void check_open() const;
  Node& node(TaskNumber number) { return nodes_[static_cast<size_t>(number - first_)]; }

  Calls calls_;
  Timeline& timeline_;
  ExecutorOptions options_;
  LaneRules lanes_;
  mutable std::mutex mutex_;  // guards all members that follow
  bool closed_ = false;
  int64_t step_ = 0;
  std::exception_ptr error_;
  bool stalled_ = false;
  size_t working_ = 0;  // lanes whose threads are at their work
  uint64_t ended_ = 0;  // tasks
  Dependencies dependencies_;
  std::deque<Node> nodes_;  // from task `first_` on; earlier ones are done and gone
  TaskNumber first_ = 0;
  std::deque<Queue> queues_;  // a lane each
  Bell done_;
  std::mt19937_64 random_;

  std::vector<std::thread> workers_;
};

}  // namespace klotski
