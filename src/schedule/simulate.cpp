#include "schedule/simulate.h"

#include <algorithm>

namespace klotski {

Simulation::Simulation(Cost cost, Routing routing, Timeline& timeline)
    : cost_(std::move(cost)), routing_(std::move(routing)), timeline_(timeline) {}

void Simulation::begin_pass() {
  dependencies_.done_before(last_pass_);
  ended_.erase(ended_.begin(), ended_.begin() + (last_pass_ - first_ended_));
  first_ended_ = last_pass_;
  last_pass_ = dependencies_.next();
  const std::chrono::nanoseconds ended = pass_end();
  for (std::chrono::nanoseconds& free : lane_free_) free = std::max(free, ended);
}

std::chrono::nanoseconds Simulation::pass_end() const {
  return std::max(end(Lane::compute), end(Lane::kv_out));
}

void Simulation::submit(Fragment fragment) {
  for (const Task& task : fragment) {
    std::chrono::nanoseconds& lane_free = lane_free_[lane_index(task.lane)];
    TimelineSpan span = span_of(task);
    span.start = lane_free;
    for (const TaskNumber number : dependencies_.add(task)) {
      const Ended& earlier = ended_[static_cast<size_t>(number - first_ended_)];
      if (earlier.at <= span.start) continue;
      span.start = earlier.at;
      span.waited_for = earlier.lane;
    }
    span.end = span.start + cost_(task);
    lane_free = span.end;
    end_ = std::max(end_, span.end);
    ended_.push_back({span.end, task.lane});
    timeline_.record(span);
  }
}

}  // namespace klotski
