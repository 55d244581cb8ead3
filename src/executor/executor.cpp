#include "executor/executor.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/memory_limit.h"
#include "base/thread_stacks.h"

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

}  // namespace

Executor::Executor(Calls calls, Timeline& timeline, const ExecutorOptions& options)
    : calls_(std::move(calls)),
      timeline_(timeline),
      options_(options),
      random_(options.stress_seed.value_or(0)) {
  try {
    for (size_t lane = 0; lane < kLaneCount; ++lane) {
      workers_.emplace_back([this, lane] { work(static_cast<Lane>(lane)); });
    }
  } catch (const std::system_error& error) {
    close();
    fail(ErrorKind::does_not_fit, "a thread cannot be started ({}): too many processes, or {}",
         error.what(), describe_shortage(kThreadStackBytes));
  }
}

Executor::~Executor() { close(); }

template <typename Ready>
void Executor::wait_until(std::unique_lock<std::mutex>& lock, Bell& bell, const Ready& ready) {
  if (options_.look_before_sleep.count() == 0) return bell.wake.wait(lock, ready);
  auto until = std::chrono::steady_clock::now() + options_.look_before_sleep;
  bool late = false;
  while (!ready()) {
    if (late) {
      bell.wake.wait(lock);  // whoever wakes it may be early: it looks again
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

// Choices set all lanes going. Those who sleep are woken while they are made, and where that has
// begun ahead while what comes before them is: waking takes as long.
void Executor::wake_for_choices(const std::deque<Call>& calls) {
  const auto makes_choices = [](const Call& call) { return call.tasks[0]->work == Work::gate; };
  const auto next = calls.begin() + std::min<std::ptrdiff_t>(std::ssize(calls), 2);
  if (options_.look_before_sleep.count() == 0) return;
  if (std::none_of(calls.begin(), next, makes_choices)) return;
  for (Bell& bell : bells_) bell.wake.notify_all();
  done_.wake.notify_all();
}

void Executor::ring_all_lanes() {
  for (Bell& bell : bells_) bell.ring();
}

void Executor::close() {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    ring_all_lanes();
  }
  for (std::thread& worker : workers_) worker.join();
}

void Executor::set_step(int64_t step) {
  const std::lock_guard lock(mutex_);
  step_ = step;
}

TaskNumber Executor::submit(Fragment fragment) {
  const std::lock_guard lock(mutex_);
  std::array<bool, kLaneCount> more{};
  for (Task& task : fragment) {
    std::vector<TaskNumber> waits = dependencies_.add(task);
    const TaskNumber number = dependencies_.next() - 1;
    const Lane lane = task.lane;
    Node added{.task = std::move(task), .step = step_, .submitted_at = timeline_.now()};
    for (const TaskNumber earlier : waits) {
      if (earlier < first_ || node(earlier).done) continue;
      node(earlier).waited_by.push_back(number);
      ++added.waits_for;
    }
    added.waits = std::move(waits);
    nodes_.push_back(std::move(added));
    queues_[lane_index(lane)].push_back(number);
    more[lane_index(lane)] = true;
  }
  for (size_t lane = 0; lane < kLaneCount; ++lane) {
    if (more[lane]) bells_[lane].ring();
  }
  return dependencies_.next() - 1;
}

void Executor::wait(TaskNumber number) {
  std::unique_lock lock(mutex_);
  wait_until(lock, done_, [&] { return number < first_ || node(number).done; });
  throw_if_failed();
}

void Executor::drain(bool loads_may_go_on) {
  std::unique_lock lock(mutex_);
  done_.wake.wait(lock, [&] {
    return std::all_of(nodes_.begin(), nodes_.end(), [&](const Node& node) {
      const bool load = node.task.work == Work::fetch || node.task.work == Work::load ||
                        node.task.work == Work::settle;
      return node.done || (load && loads_may_go_on && !error_);
    });
  });
  throw_if_failed();
}

void Executor::restart_clock() {
  const std::lock_guard lock(mutex_);
  timeline_.restart();
  lane_free_.fill(std::chrono::nanoseconds(0));
}

bool Executor::failed() const {
  const std::lock_guard lock(mutex_);
  return error_ != nullptr;
}

void Executor::recover() {
  std::unique_lock lock(mutex_);
  done_.wake.wait(lock, [&] { return nodes_.empty(); });
  error_ = nullptr;
}

void Executor::throw_if_failed() const {
  if (error_) std::rethrow_exception(error_);
}

// All it waits for is over, or it waits for the rest itself. Not so where lanes are out of order:
// what waits by itself counts on it.
bool Executor::may_begin(const Node& waiting) {
  if (waiting.waits_for == 0) return true;
  if (!calls_.awaits || options_.stress_seed) return false;
  return std::all_of(waiting.waits.begin(), waiting.waits.end(), [&](TaskNumber number) {
    if (number < first_) return true;
    const Node& earlier = node(number);
    return earlier.done || (earlier.begun && calls_.awaits(waiting.task, earlier.task));
  });
}

// The next task of the lane that may begin, and those joined to it; none: none may. Once something
// has failed every task may begin: it is given up unrun.
Executor::Numbers Executor::pick(Lane lane) {
  std::deque<TaskNumber>& queue = queues_[lane_index(lane)];
  std::vector<size_t> ready;
  for (size_t i = 0; i < queue.size(); ++i) {
    if (error_ || may_begin(node(queue[i]))) ready.push_back(i);
    if (!options_.stress_seed) break;  // in order: only the first one counts
  }
  if (ready.empty()) return {};
  const size_t at = ready[options_.stress_seed ? random_() % ready.size() : 0];
  const auto begin = queue.begin() + static_cast<std::ptrdiff_t>(at);
  const auto end = queue.begin() + static_cast<std::ptrdiff_t>(join(queue, at));
  Numbers picked(begin, end);
  queue.erase(begin, end);
  return picked;
}

// Where the tasks end that run in one call with the one at `begin`.
size_t Executor::join(const std::deque<TaskNumber>& queue, size_t begin) {
  size_t end = begin + 1;
  if (!calls_.may_join || error_) return end;
  const Node& first = node(queue[begin]);
  std::vector<const Task*> together = {&first.task};
  for (; end < queue.size(); ++end) {
    const Node& next = node(queue[end]);
    // Those that may run do not wait for those that wait by themselves.
    const bool alike = (next.waits_for == 0) == (first.waits_for == 0);
    if (!may_begin(next) || !alike || next.step != first.step) break;
    if (!calls_.may_join(together, next.task)) break;
    if (options_.stress_seed && random_() % 4 == 0) break;
    together.push_back(&next.task);
  }
  return end;
}

void Executor::work(Lane lane) {
  const size_t most_begun = lane == Lane::compute     ? kMostComputations
                            : lane == Lane::to_device ? kMostCopies
                                                      : 1;
  std::unique_lock lock(mutex_);
  std::deque<Call> calls;  // under way
  while (true) {
    Numbers picked;
    wait_until(lock, bell_of(lane), [&] {
      const bool another = calls.empty() || (calls.back().begun && calls.size() < most_begun);
      if (another && !closed_) picked = pick(lane);
      return closed_ || !picked.empty() || (!calls.empty() && is_due(calls.front()));
    });
    if (!picked.empty()) {
      calls.push_back(begun_call(lock, picked));
    } else if (!calls.empty()) {
      wake_for_choices(calls);
      run_call(lock, calls.front());
      calls.pop_front();
    } else {
      return;
    }
  }
}

// Nothing is left that its tasks wait for; what has not begun is given up once something failed.
// What has begun waits even so: others may still be writing what it reads.
bool Executor::is_due(const Call& call) {
  return (error_ && !call.begun) ||
         std::all_of(call.numbers.begin(), call.numbers.end(),
                     [&](TaskNumber number) { return node(number).waits_for == 0; });
}

// A call that has begun, unless it is given up or nothing of it begins early.
Executor::Call Executor::begun_call(std::unique_lock<std::mutex>& lock, const Numbers& numbers) {
  Call call{.numbers = numbers, .tasks = {}, .waits = {}, .span = {}};
  for (const TaskNumber number : numbers) call.tasks.push_back(&node(number).task);
  call.span = span_of_call(call.tasks);
  call.span.step = node(numbers[0]).step;
  if (!calls_.begin || error_) return call;
  call.begun_at = timeline_.now();
  lock.unlock();
  try {
    call.begun = calls_.begin(call.tasks);
  } catch (...) {
    call.failure = std::current_exception();
  }
  lock.lock();
  if (call.begun) have_begun(numbers);
  return call;
}

// Whoever waits for them by itself may begin.
void Executor::have_begun(const Numbers& numbers) {
  for (const TaskNumber number : numbers) {
    node(number).begun = true;
    for (const TaskNumber later : node(number).waited_by) wake_if_it_may_begin(node(later));
  }
}

void Executor::wake_if_it_may_begin(const Node& waiting) {
  if (may_begin(waiting)) bell_of(waiting.task.lane).ring();
}

void Executor::run_call(std::unique_lock<std::mutex>& lock, Call& call) {
  const bool give_up = error_ != nullptr || call.failure;
  std::chrono::microseconds delay(0);
  if (options_.stress_seed) {
    delay = options_.stress_delay * static_cast<int64_t>(random_() % 256) / 256;
  }
  std::chrono::nanoseconds& lane_free = lane_free_[lane_index(call.tasks[0]->lane)];
  std::chrono::nanoseconds could_begin = std::max(lane_free, call.begun_at);
  for (const TaskNumber number : call.numbers) {
    const Node& running = node(number);
    const bool waited = running.ready_at > std::max(lane_free, running.submitted_at);
    call.waits.push_back(waited ? std::optional(running.ready_by) : std::nullopt);
    could_begin = std::max(could_begin, running.ready_at);
  }
  if (!give_up && !call.begun) have_begun(call.numbers);
  lock.unlock();

  if (delay.count() > 0) std::this_thread::sleep_for(delay);
  call.span.start = call.span.end = call.begun ? could_begin : timeline_.now();
  try {
    // What has begun must end, whatever became of the others.
    if (!give_up || call.begun) carry_out(call);
  } catch (...) {
    call.failure = std::current_exception();
  }

  lock.lock();
  lane_free = call.span.end;
  if (call.failure && !error_) {
    error_ = call.failure;
    ring_all_lanes();
  }
  for (const TaskNumber number : call.numbers) finish(number, call.span.end);
}

// The call is one span. It began when its first task could.
void Executor::carry_out(Call& call) {
  calls_.run(call.tasks);
  call.span.end = timeline_.now();
  call.span.waited_for = call.waits[0];
  timeline_.record(call.span);
  if (!calls_.observe) return;
  for (size_t i = 0; i < call.tasks.size(); ++i) {
    call.span.waited_for = call.waits[i];
    calls_.observe(*call.tasks[i], call.span);
  }
}

void Executor::finish(TaskNumber number, std::chrono::nanoseconds at) {
  Node& finished = node(number);
  finished.done = true;
  for (const TaskNumber later : finished.waited_by) {
    Node& waiting = node(later);
    if (at >= waiting.ready_at) waiting.ready_by = finished.task.lane;
    waiting.ready_at = std::max(waiting.ready_at, at);
    --waiting.waits_for;
    wake_if_it_may_begin(waiting);
  }
  while (!nodes_.empty() && nodes_.front().done) {
    nodes_.pop_front();
    ++first_;
  }
  dependencies_.done_before(first_);
  done_.ring();
}

}  // namespace klotski
