#include "executor/executor.h"

#include <algorithm>
#include <system_error>

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

Executor::Executor(Run run, MayJoin may_join, Observe observe, Timeline& timeline,
                   const ExecutorOptions& options)
    : run_(std::move(run)),
      may_join_(std::move(may_join)),
      observe_(std::move(observe)),
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

void Executor::close() {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
  }
  for (std::condition_variable& wake : lane_wakes_) wake.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void Executor::set_step(int64_t step) {
  const std::lock_guard lock(mutex_);
  step_ = step;
}

TaskNumber Executor::submit(Fragment fragment) {
  const std::lock_guard lock(mutex_);
  for (Task& task : fragment) {
    const std::vector<TaskNumber> waits = dependencies_.add(task);
    const TaskNumber number = dependencies_.next() - 1;
    const Lane lane = task.lane;
    Node added{.task = std::move(task), .step = step_, .submitted_at = timeline_.now()};
    for (const TaskNumber earlier : waits) {
      if (earlier < first_ || node(earlier).done) continue;
      node(earlier).waited_by.push_back(number);
      ++added.waits_for;
    }
    nodes_.push_back(std::move(added));
    queues_[lane_index(lane)].push_back(number);
    lane_wakes_[lane_index(lane)].notify_one();
  }
  return dependencies_.next() - 1;
}

void Executor::wait(TaskNumber number) {
  std::unique_lock lock(mutex_);
  done_.wait(lock, [&] { return number < first_ || node(number).done; });
  throw_if_failed();
}

void Executor::drain(bool loads_may_go_on) {
  std::unique_lock lock(mutex_);
  done_.wait(lock, [&] {
    return std::all_of(nodes_.begin(), nodes_.end(), [&](const Node& node) {
      const bool load = node.task.work == Work::load || node.task.work == Work::settle;
      return node.done || (load && loads_may_go_on && !error_);
    });
  });
  throw_if_failed();
}

bool Executor::failed() const {
  const std::lock_guard lock(mutex_);
  return error_ != nullptr;
}

void Executor::recover() {
  std::unique_lock lock(mutex_);
  done_.wait(lock, [&] { return nodes_.empty(); });
  error_ = nullptr;
}

void Executor::throw_if_failed() const {
  if (error_) std::rethrow_exception(error_);
}

// The next task of the lane that may begin, and those joined to it; none: none may. Once something
// has failed every task may begin: it is given up unrun.
Executor::Numbers Executor::pick(Lane lane) {
  std::deque<TaskNumber>& queue = queues_[lane_index(lane)];
  std::vector<size_t> ready;
  for (size_t i = 0; i < queue.size(); ++i) {
    if (error_ || node(queue[i]).waits_for == 0) ready.push_back(i);
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
  if (!may_join_ || error_) return end;
  const Node& first = node(queue[begin]);
  std::vector<const Task*> together = {&first.task};
  for (; end < queue.size(); ++end) {
    const Node& next = node(queue[end]);
    if (next.waits_for > 0 || next.step != first.step || !may_join_(together, next.task)) break;
    if (options_.stress_seed && random_() % 4 == 0) break;
    together.push_back(&next.task);
  }
  return end;
}

void Executor::work(Lane lane) {
  std::unique_lock lock(mutex_);
  while (true) {
    Numbers picked;
    lane_wakes_[lane_index(lane)].wait(lock, [&] {
      if (!closed_) picked = pick(lane);
      return closed_ || !picked.empty();
    });
    if (closed_) return;
    run_call(lock, picked);
  }
}

void Executor::run_call(std::unique_lock<std::mutex>& lock, const Numbers& numbers) {
  const bool give_up = error_ != nullptr;
  std::chrono::microseconds delay(0);
  if (options_.stress_seed) {
    delay = options_.stress_delay * static_cast<int64_t>(random_() % 256) / 256;
  }
  std::chrono::nanoseconds& lane_free = lane_free_[lane_index(node(numbers[0]).task.lane)];
  std::vector<const Task*> tasks;  // they stay where they are: only done ones are removed
  std::vector<std::optional<Lane>> waits;
  for (const TaskNumber number : numbers) {
    const Node& running = node(number);
    const bool waited = running.ready_at > std::max(lane_free, running.submitted_at);
    tasks.push_back(&running.task);
    waits.push_back(waited ? std::optional(running.ready_by) : std::nullopt);
  }
  TimelineSpan span = span_of_call(tasks);
  span.step = node(numbers[0]).step;
  lock.unlock();

  std::exception_ptr failure;
  if (delay.count() > 0) std::this_thread::sleep_for(delay);
  span.start = span.end = timeline_.now();
  try {
    if (!give_up) carry_out(tasks, waits, span);
  } catch (...) {
    failure = std::current_exception();
  }

  lock.lock();
  lane_free = span.end;
  if (failure && !error_) {
    error_ = failure;
    for (std::condition_variable& wake : lane_wakes_) wake.notify_all();
  }
  for (const TaskNumber number : numbers) finish(number, span.end);
}

// The call is one span. It began when its first task could.
void Executor::carry_out(Tasks tasks, std::span<const std::optional<Lane>> waits,
                         TimelineSpan& span) {
  run_(tasks);
  span.end = timeline_.now();
  span.waited_for = waits[0];
  timeline_.record(span);
  if (!observe_) return;
  for (size_t i = 0; i < tasks.size(); ++i) {
    span.waited_for = waits[i];
    observe_(*tasks[i], span);
  }
}

void Executor::finish(TaskNumber number, std::chrono::nanoseconds at) {
  Node& finished = node(number);
  finished.done = true;
  for (const TaskNumber later : finished.waited_by) {
    Node& waiting = node(later);
    waiting.ready_at = at;
    waiting.ready_by = finished.task.lane;
    if (--waiting.waits_for == 0) lane_wakes_[lane_index(waiting.task.lane)].notify_one();
  }
  while (!nodes_.empty() && nodes_.front().done) {
    nodes_.pop_front();
    ++first_;
  }
  dependencies_.done_before(first_);
  done_.notify_all();
}

}  // namespace klotski
