#include "executor/executor.h"

#include <algorithm>
#include <system_error>

#include "base/error.h"

namespace klotski {

Executor::Executor(Run run, Observe observe, Timeline& timeline, const ExecutorOptions& options)
    : run_(std::move(run)),
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
    fail(ErrorKind::does_not_fit,
         "a thread cannot be started ({}): too little memory, or too many processes", error.what());
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

// The next task of the lane that may begin. Once something has failed every task may: it is given
// up unrun.
std::optional<TaskNumber> Executor::pick(Lane lane) {
  std::deque<TaskNumber>& queue = queues_[lane_index(lane)];
  std::vector<size_t> ready;
  for (size_t i = 0; i < queue.size(); ++i) {
    if (error_ || node(queue[i]).waits_for == 0) ready.push_back(i);
    if (!options_.stress_seed) break;  // in order: only the first one counts
  }
  if (ready.empty()) return std::nullopt;
  const size_t at = ready[options_.stress_seed ? random_() % ready.size() : 0];
  const TaskNumber number = queue[at];
  queue.erase(queue.begin() + static_cast<std::ptrdiff_t>(at));
  return number;
}

void Executor::work(Lane lane) {
  std::unique_lock lock(mutex_);
  while (true) {
    std::optional<TaskNumber> number;
    lane_wakes_[lane_index(lane)].wait(lock, [&] {
      if (!closed_) number = pick(lane);
      return closed_ || number;
    });
    if (closed_) return;
    run_task(lock, *number);
  }
}

void Executor::run_task(std::unique_lock<std::mutex>& lock, TaskNumber number) {
  Node& running = node(number);  // stays where it is: only done nodes at the front are removed
  const bool give_up = error_ != nullptr;
  std::chrono::microseconds delay(0);
  if (options_.stress_seed) {
    delay = options_.stress_delay * static_cast<int64_t>(random_() % 256) / 256;
  }
  TimelineSpan span = span_of(running.task);
  span.step = running.step;
  std::chrono::nanoseconds& lane_free = lane_free_[lane_index(span.lane)];
  if (running.ready_at > std::max(lane_free, running.submitted_at)) {
    span.waited_for = running.ready_by;
  }
  lock.unlock();

  std::exception_ptr failure;
  if (delay.count() > 0) std::this_thread::sleep_for(delay);
  span.start = timeline_.now();
  try {
    if (!give_up) run_(running.task);
    span.end = timeline_.now();
    if (!give_up) timeline_.record(span);
    if (!give_up && observe_) observe_(running.task, span);
  } catch (...) {
    failure = std::current_exception();
    span.end = timeline_.now();
  }

  lock.lock();
  lane_free = span.end;
  if (failure && !error_) {
    error_ = failure;
    for (std::condition_variable& wake : lane_wakes_) wake.notify_all();
  }
  finish(number, span.end);
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
