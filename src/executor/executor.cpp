#include "executor/executor.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/memory_limit.h"
#include "base/thread_stacks.h"
#include "timeline/lane_map.h"

namespace klotski {

namespace {

TimelineSpan span_of_call(Executor::Tasks tasks) {
  TimelineSpan span = span_of(*tasks[0]);
  for (const Task* joined : tasks.subspan(1)) {
    span.bytes += joined->bytes;
    span.expert = -1;
  }
  return span;
}

// A task without the spaces that align it with others.
std::string in_one_line(const Task& task) {
  std::string text;
  for (const char letter : format_task(task)) {
    if (letter != ' ' || (!text.empty() && text.back() != ' ')) text += letter;
  }
  return text;
}

}  // namespace

Executor::Executor(Calls calls, Timeline& timeline, const ExecutorOptions& options,
                   const LaneRules& lanes)
    : calls_(std::move(calls)),
      timeline_(timeline),
      options_(options),
      lanes_(lanes),
      dependencies_({lanes.most_begun, lanes.keep_program_order && !options.stress_seed}),
      random_(options.stress_seed.value_or(0)) {
  for (const Lane lane : options.lanes) queues_.emplace_back().lane = lane;
  try {
    for (Queue& of_lane : queues_) workers_.emplace_back([this, &of_lane] { work(of_lane); });
  } catch (const std::system_error& error) {
    close();
    fail(ErrorKind::does_not_fit, "a thread cannot be started ({}): too many processes, or {}",
         error.what(), describe_shortage(kThreadStackBytes));
  } catch (...) {  // no memory for the thread's own record
    close();
    throw;
  }
}

Executor::~Executor() { close(); }

template <typename Ready, typename Sleep>
void Executor::wait_until(std::unique_lock<std::mutex>& lock, const Bell& bell, const Ready& ready,
                          const Sleep& sleep) {
  const bool looks = options_.look_before_sleep.count() > 0;
  auto until = std::chrono::steady_clock::now() + options_.look_before_sleep;
  bool late = !looks;
  while (!ready()) {
    if (late) {
      sleep();  // whoever wakes it may be early: it looks again
      if (!looks) continue;
      until = std::chrono::steady_clock::now() + options_.look_before_sleep;
      late = false;
      continue;
    }
    const uint64_t seen = bell.rung;
    lock.unlock();
    while (bell.rung == seen && !late) {
      std::this_thread::yield();
      late = std::chrono::steady_clock::now() >= until;
    }
    lock.lock();
  }
}

// Wakes sleeping lane threads while a task runs whose end gives work to all lanes
// (TaskKind::wakes_lanes) or, where that task has begun ahead, while the task before it runs.
// Waking a thread takes as long as a short task.
void Executor::wake_sleepers(const std::deque<Call>& calls) {
  const auto wakes = [](const Call& call) { return kind_of(call.tasks[0]->work).wakes_lanes; };
  const auto next = calls.begin() + std::min<std::ptrdiff_t>(std::ssize(calls), 2);
  if (options_.look_before_sleep.count() == 0) return;
  if (std::none_of(calls.begin(), next, wakes)) return;
  for (Queue& of_lane : queues_) of_lane.bell.wake.notify_all();
  done_.wake.notify_all();
}

void Executor::ring_all_lanes() {
  for (Queue& of_lane : queues_) of_lane.bell.ring();
}

Executor::Queue& Executor::queue_of(Lane lane) {
  for (Queue& of_lane : queues_) {
    if (of_lane.lane == lane) return of_lane;
  }
  fail(ErrorKind::internal, "nobody carries out tasks of the lane \"{}\"", lane_name(lane));
}

void Executor::close() {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    ring_all_lanes();
  }
  for (std::thread& worker : workers_) worker.join();
}

bool Executor::stop() {
  std::unique_lock lock(mutex_);
  closed_ = true;
  ring_all_lanes();
  try {
    wait_for_tasks(lock, [&] { return working_ == 0; });
  } catch (const Error&) {
    return false;
  }
  return true;
}

void Executor::abandon() {
  for (std::thread& worker : workers_) worker.detach();
}

void Executor::set_step(int64_t step) {
  const std::lock_guard lock(mutex_);
  step_ = step;
}

TaskNumber Executor::submit(Fragment fragment) {
  const std::lock_guard lock(mutex_);
  check_open();
  LaneMap<Queue*> more;
  try {
    for (Task& task : fragment) {
      more.at(task.lane) = &queue_of(task.lane);
      add(std::move(task));
    }
  } catch (...) {
    ring_all_lanes();  // lanes run the added tasks
    throw;
  }
  for (const auto& [lane, of_lane] : more) of_lane->bell.ring();
  return dependencies_.next() - 1;
}

void Executor::add(Task task) {
  if (task.priority != 0 && !brings_weights(task.work)) {
    fail(ErrorKind::internal, "a task that brings no weights has a priority");
  }
  const TaskNumber number = dependencies_.next();
  nodes_.push_back({.task = std::move(task), .step = step_, .submitted_at = timeline_.now()});
  Node& added = nodes_.back();
  try {
    added.begins_ahead = dependencies_.begins_ahead(added.task);
    for (const Edge& edge : dependencies_.add(added.task)) {
      if (edge.task < first_ || node(edge.task).done) continue;
      node(edge.task).waited_by.push_back({number, edge.after});
      ++added.waits_for;
      if (edge.after == After::done || !node(edge.task).begun) ++added.held_by;
    }
    queue_of(added.task.lane).tasks.push(number, added.task.priority);
  } catch (...) {
    // No lane knows of the task, but later tasks may be told to wait for its number.
    added.done = true;
    if (dependencies_.next() == number) nodes_.pop_back();
    forget_done();
    throw;
  }
}

bool Executor::may_withdraw(std::span<const TaskNumber> numbers) {
  return !numbers.empty() && std::all_of(numbers.begin(), numbers.end(), [&](TaskNumber number) {
    if (number < first_ || node(number).done) return false;
    const Node& taken = node(number);
    const bool needed =
        std::any_of(taken.waited_by.begin(), taken.waited_by.end(), [&](const Edge& later) {
          const bool with_it = std::count(numbers.begin(), numbers.end(), later.task) > 0;
          return !with_it && !node(later.task).withdrawn;
        });
    return !needed && brings_weights(taken.task.work) &&
           queue_of(taken.task.lane).tasks.has(number);
  });
}

// A withdrawn task keeps its place in the order: the task that fills its slot next waits for it
// alone, and must not begin before all readers of the slot's former unit are over. It is done,
// unrun, as soon as its dependencies are.
bool Executor::withdraw(std::span<const TaskNumber> numbers) {
  const std::lock_guard lock(mutex_);
  if (!may_withdraw(numbers)) return false;
  for (const TaskNumber number : numbers) {
    Node& taken = node(number);
    queue_of(taken.task.lane).tasks.remove(number);
    taken.withdrawn = true;
    dependencies_.withdraw(taken.task, number);
    queue_of(taken.task.lane).bell.ring();  // another task may be the first of its priority now
  }
  // A withdrawn task is done as soon as it waits for no other task; finish() looks at the withdrawn
  // tasks that wait for it.
  for (const TaskNumber number : numbers) {
    if (number >= first_ && !node(number).done && node(number).waits_for == 0) {
      finish(number, node(number).ready_at);
    }
  }
  return true;
}

template <typename Ready>
void Executor::wait_for_tasks(std::unique_lock<std::mutex>& lock, const Ready& ready) {
  if (stalled_ && at_work()) throw_if_failed();
  StallWatch watch(options_.stall_limit, ended_, StallWatch::Clock::now());
  wait_until(lock, done_, ready, [&] {
    const std::cv_status woken = done_.wake.wait_for(lock, watch.look_every());
    if (woken == std::cv_status::timeout) look_after_tasks(lock, watch);
  });
}

// Fails where no task has ended for the limit: what a lane waits for may never come, and all that
// its task uses is lost.
void Executor::look_after_tasks(std::unique_lock<std::mutex>& lock, StallWatch& watch) {
  using Verdict = StallWatch::Verdict;
  const Verdict verdict = watch.look(ended_, StallWatch::Clock::now());
  if (verdict == Verdict::goes_on) return;
  const std::string stillness = fmt::format("no task has ended for {:.3g} s: {}",
                                            in_seconds(watch.still()), describe_lanes());
  if (verdict == Verdict::stalled) {
    stalled_ = true;
    error_ = std::make_exception_ptr(Error(ErrorKind::device_lost, stillness));
    ring_all_lanes();
    throw_if_failed();
  }
  if (!options_.tell_slow) return;
  lock.unlock();
  options_.tell_slow(fmt::format("{}; after {:.3g} s this is an error", stillness,
                                 in_seconds(options_.stall_limit)));
  lock.lock();
}

// The first task of every lane: the one that is carried out, or has to wait.
std::string Executor::describe_lanes() {
  std::vector<std::string> at_work;
  std::vector<std::string> waiting;
  for (const Queue& of_lane : queues_) {
    if (!of_lane.at_work.empty()) {
      at_work.push_back(in_one_line(*of_lane.at_work[0]));
    } else if (of_lane.tasks.size() > 0) {
      waiting.push_back(in_one_line(node(of_lane.tasks[0]).task));
    }
  }
  return fmt::format("at work: [{}], waiting: [{}]", fmt::join(at_work, ", "),
                     fmt::join(waiting, ", "));
}

bool Executor::at_work() const {
  return std::any_of(queues_.begin(), queues_.end(),
                     [](const Queue& of_lane) { return !of_lane.at_work.empty(); });
}

bool Executor::stalled() const {
  const std::lock_guard lock(mutex_);
  return stalled_ && at_work();
}

void Executor::wait(TaskNumber number) {
  std::unique_lock lock(mutex_);
  wait_for_tasks(lock, [&] { return number < first_ || node(number).done; });
  throw_if_failed();
}

void Executor::drain(bool loads_may_go_on) {
  std::unique_lock lock(mutex_);
  wait_for_tasks(lock, [&] {
    return std::all_of(nodes_.begin(), nodes_.end(), [&](const Node& node) {
      const bool may_go_on = loads_may_go_on && !error_ && brings_weights(node.task.work);
      return node.done || may_go_on;
    });
  });
  throw_if_failed();
}

void Executor::restart_clock() {
  const std::lock_guard lock(mutex_);
  timeline_.restart();
  for (Queue& of_lane : queues_) of_lane.free = std::chrono::nanoseconds(0);
}

bool Executor::failed() const {
  const std::lock_guard lock(mutex_);
  return error_ != nullptr;
}

void Executor::recover() {
  std::unique_lock lock(mutex_);
  check_open();
  wait_for_tasks(lock, [&] { return nodes_.empty(); });
  error_ = nullptr;
  stalled_ = false;
}

// Lanes that have stopped would leave every task undone.
void Executor::check_open() const {
  if (closed_) fail(ErrorKind::device_lost, "tasks are not taken by an executor that was stopped");
}

void Executor::throw_if_failed() const {
  if (error_) std::rethrow_exception(error_);
}

// The index of the task that the lane takes next; none where none may begin. After a failure every
// task may begin, and is given up without being run.
std::optional<size_t> Executor::first_that_may_begin(const LaneQueue& queue) {
  const auto may_begin = [&](size_t place) { return error_ || node(queue[place]).held_by == 0; };
  if (!options_.stress_seed) {
    for (size_t place = 0; place < queue.size(); place = queue.next_priority(place)) {
      if (may_begin(place)) return place;
    }
    return {};
  }
  std::vector<size_t> ready;
  for (size_t place = 0; place < queue.size(); ++place) {
    if (may_begin(place)) ready.push_back(place);
  }
  if (ready.empty()) return {};
  return ready[random_() % ready.size()];
}

// The next task of the lane that may begin, and the tasks joined to it; none where none may.
Executor::Numbers Executor::pick(Queue& of_lane) {
  LaneQueue& queue = of_lane.tasks;
  const std::optional<size_t> begin = first_that_may_begin(queue);
  if (!begin) return {};
  const size_t end = join(queue, *begin);
  Numbers picked;
  for (size_t place = *begin; place < end; ++place) picked.push_back(queue[place]);
  queue.erase(*begin, end);
  return picked;
}

// The end of the tasks in the queue that run in one call with the task at `begin`.
size_t Executor::join(const LaneQueue& queue, size_t begin) {
  size_t end = begin + 1;
  if (!calls_.may_join || error_) return end;
  const Node& first = node(queue[begin]);
  std::vector<const Task*> together = {&first.task};
  for (; end < queue.size(); ++end) {
    const Node& next = node(queue[end]);
    // A task whose dependencies are over joins no call that still waits for its own.
    const bool alike =
        (next.waits_for == 0) == (first.waits_for == 0) && next.begins_ahead == first.begins_ahead;
    if (next.held_by > 0 || !alike || next.step != first.step) break;
    if (next.task.priority != first.task.priority) break;  // not in program order
    if (!calls_.may_join(together, next.task)) break;
    if (options_.stress_seed && random_() % 4 == 0) break;
    together.push_back(&next.task);
  }
  return end;
}

void Executor::work(Queue& of_lane) {
  const size_t most_begun = lanes_.most_begun_on(of_lane.lane);
  std::unique_lock lock(mutex_);
  ++working_;
  std::deque<Call> calls;  // under way
  while (true) {
    Numbers picked;
    const auto has_work = [&] {
      const bool another = calls.empty() || (calls.back().begun && calls.size() < most_begun);
      if (another && !closed_) picked = pick(of_lane);
      return closed_ || !picked.empty() || (!calls.empty() && is_due(calls.front()));
    };
    wait_until(lock, of_lane.bell, has_work, [&] { of_lane.bell.wake.wait(lock); });
    if (!picked.empty()) {
      calls.push_back(begun_call(lock, picked));
    } else if (!calls.empty()) {
      wake_sleepers(calls);
      run_call(lock, calls.front());
      calls.pop_front();
    } else {
      break;
    }
  }
  --working_;
  done_.ring();
}

// Whether a call's dependencies are over, or it has not begun and is given up since something
// failed. A call that has begun waits even after a failure: other tasks may still be writing places
// it reads.
bool Executor::is_due(const Call& call) {
  return (error_ && !call.begun) ||
         std::all_of(call.numbers.begin(), call.numbers.end(),
                     [&](TaskNumber number) { return node(number).waits_for == 0; });
}

// A call that has begun, unless it is given up or does not begin ahead.
Executor::Call Executor::begun_call(std::unique_lock<std::mutex>& lock, const Numbers& numbers) {
  Call call{.numbers = numbers, .tasks = {}, .waits = {}, .span = {}};
  for (const TaskNumber number : numbers) call.tasks.push_back(&node(number).task);
  call.span = span_of_call(call.tasks);
  call.span.step = node(numbers[0]).step;
  if (!node(numbers[0]).begins_ahead || error_) return call;
  call.begun_at = timeline_.now();
  Queue& of_lane = queue_of(call.tasks[0]->lane);
  of_lane.at_work = call.tasks;
  lock.unlock();
  try {
    calls_.begin(call.tasks);
    call.begun = true;
  } catch (...) {
    call.failure = std::current_exception();
  }
  lock.lock();
  of_lane.at_work = {};
  if (call.begun) have_begun(numbers);
  return call;
}

// Lets the tasks begin that may begin once these tasks have begun (After::begun).
void Executor::have_begun(const Numbers& numbers) {
  for (const TaskNumber number : numbers) {
    node(number).begun = true;
    for (const Edge& later : node(number).waited_by) {
      if (later.after == After::begun) let_go(node(later.task));
    }
  }
}

// Counts one task less that keeps `waiting` from beginning; after the last one its lane is told.
void Executor::let_go(Node& waiting) {
  if (--waiting.held_by == 0) queue_of(waiting.task.lane).bell.ring();
}

void Executor::run_call(std::unique_lock<std::mutex>& lock, Call& call) {
  const bool give_up = error_ != nullptr || call.failure;
  std::chrono::microseconds delay(0);
  if (options_.stress_seed) {
    delay = options_.stress_delay * static_cast<int64_t>(random_() % 256) / 256;
  }
  Queue& of_lane = queue_of(call.tasks[0]->lane);
  std::chrono::nanoseconds& lane_free = of_lane.free;
  std::chrono::nanoseconds could_begin = std::max(lane_free, call.begun_at);
  for (const TaskNumber number : call.numbers) {
    const Node& running = node(number);
    const bool waited = running.ready_at > std::max(lane_free, running.submitted_at);
    call.waits.push_back(waited ? std::optional(running.ready_by) : std::nullopt);
    could_begin = std::max(could_begin, running.ready_at);
  }
  if (!give_up && !call.begun) have_begun(call.numbers);
  of_lane.at_work = call.tasks;
  lock.unlock();

  if (delay.count() > 0) std::this_thread::sleep_for(delay);
  call.span.start = call.span.end = call.begun ? could_begin : timeline_.now();
  try {
    // A call that has begun must end, whatever became of other calls.
    if (!give_up || call.begun) carry_out(call);
  } catch (...) {
    call.failure = std::current_exception();
  }

  lock.lock();
  of_lane.at_work = {};
  lane_free = call.span.end;
  if (call.failure && !error_) {
    error_ = call.failure;
    ring_all_lanes();
  }
  for (const TaskNumber number : call.numbers) finish(number, call.span.end);
}

// Carries a call out and records it as one span. The work of a call that has begun ahead counts
// from the moment when all its tasks could run.
void Executor::carry_out(Call& call) {
  (call.begun ? calls_.finish : calls_.run)(call.tasks);
  call.span.end = timeline_.now();
  call.span.waited_for = call.waits[0];
  timeline_.record(call.span);
  if (!calls_.observe) return;
  for (size_t i = 0; i < call.tasks.size(); ++i) {
    call.span.waited_for = call.waits[i];
    calls_.observe(*call.tasks[i], call.span);
  }
}

// Withdrawn tasks that waited for this task alone are done as well.
void Executor::finish(TaskNumber number, std::chrono::nanoseconds at) {
  Numbers finished = {number};
  while (!finished.empty()) {
    const TaskNumber next = finished.back();
    finished.pop_back();
    node(next).done = true;
    ++ended_;
    release_later(next, at);
    for (const Edge& later : node(next).waited_by) {
      if (node(later.task).withdrawn && node(later.task).waits_for == 0) {
        finished.push_back(later.task);
      }
    }
  }
  forget_done();
  done_.ring();
}

// Forgets the tasks before the first one that is not done.
void Executor::forget_done() {
  while (!nodes_.empty() && nodes_.front().done) {
    nodes_.pop_front();
    ++first_;
  }
  dependencies_.done_before(first_);
}

void Executor::release_later(TaskNumber number, std::chrono::nanoseconds at) {
  const Node& finished = node(number);
  for (const Edge& later : finished.waited_by) {
    Node& waiting = node(later.task);
    if (at >= waiting.ready_at) waiting.ready_by = finished.task.lane;
    waiting.ready_at = std::max(waiting.ready_at, at);
    --waiting.waits_for;
    if (later.after == After::done || !finished.begun) {
      let_go(waiting);
    } else if (waiting.waits_for == 0) {
      queue_of(waiting.task.lane).bell.ring();  // the task has begun, and may be over
    }
  }
}

}  // namespace klotski
