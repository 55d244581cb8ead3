#include "schedule/simulate.h"

#include <algorithm>

namespace klotski {

Simulation::Simulation(Cost cost, Routing routing, Timeline& timeline)
    : cost_(std::move(cost)), routing_(std::move(routing)), timeline_(timeline) {}

void Simulation::begin_pass() {
  play_out();
  dependencies_.done_before(last_pass_);
  played_.erase(played_.begin(), played_.begin() + (last_pass_ - first_played_));
  first_played_ = last_pass_;
  last_pass_ = dependencies_.next();
  pass_began_ = pass_end();
  for (auto& [lane, free] : lane_free_) free = std::max(free, pass_began_);
}

// The time when the last task of the lane ended, or the pass began where that is later.
std::chrono::nanoseconds Simulation::lane_free(Lane lane) const {
  const std::chrono::nanoseconds* free = lane_free_.find(lane);
  return free ? *free : pass_began_;
}

std::chrono::nanoseconds Simulation::pass_end() {
  play_out();
  std::chrono::nanoseconds end = pass_began_;
  for (const auto& [lane, free] : lane_free_) {
    const bool of_pass = lane.kind == LaneKind::compute || lane.kind == LaneKind::kv_out;
    if (of_pass) end = std::max(end, free);
  }
  return end;
}

std::chrono::nanoseconds Simulation::end() {
  play_out();
  return end_;
}

std::chrono::nanoseconds Simulation::end(Lane lane) {
  play_out();
  return lane_free(lane);
}

void Simulation::submit(Fragment fragment) {
  for (const Task& task : fragment) {
    const std::vector<Edge>& edges = dependencies_.add(task);
    played_.push_back({.lane = task.lane, .waiting = waiting_.size()});
    const TaskNumber number = dependencies_.next() - 1;
    if (brings_weights(task.work)) {
      queues_.at(task.lane).push(number, task.priority);
      waiting_.push_back({.span = span_of(task), .cost = cost_(task), .edges = edges});
      ++left_;
      continue;
    }
    for (const Edge& edge : edges) play_until(edge.task);
    play(number, span_of(task), cost_(task), edges);
  }
}

void Simulation::play_until(TaskNumber number) {
  while (!played(number).over) play_next();
}

void Simulation::play_out() {
  while (left_ > 0) play_next();
}

// Plays the task that begins first of all lanes: all that could be ready by then has been played.
void Simulation::play_next() {
  std::optional<Next> first;
  for (const auto& [lane, queue] : queues_) {
    const std::optional<Next> next = next_of(lane, queue);
    if (next && (!first || next->start < first->start)) first = next;
  }
  const Waiting& task = waiting(first->number);
  play(first->number, task.span, task.cost, task.edges);
  queues_.at(first->lane).erase(first->place, first->place + 1);
  if (--left_ == 0) waiting_.clear();
}

// The task that the lane takes next, among those whose dependencies are all played: the first one
// that can begin as early as any.
std::optional<Simulation::Next> Simulation::next_of(Lane lane, const LaneQueue& queue) const {
  const std::chrono::nanoseconds free = lane_free(lane);
  std::optional<Next> next;
  for (size_t place = 0; place < queue.size(); place = queue.next_priority(place)) {
    const Waiting& task = waiting(queue[place]);
    std::chrono::nanoseconds start = free;
    bool known = true;
    for (const Edge& edge : task.edges) {
      known &= played(edge.task).over;
      start = std::max(start, played(edge.task).end);
    }
    if (known && (!next || start < next->start)) next = Next{lane, place, queue[place], start};
    if (next && next->start == free) break;  // nobody can be earlier
  }
  return next;
}

// A task waits until its dependencies are over, even where a device waits by itself: the later task
// then has begun, but goes on no sooner.
void Simulation::play(TaskNumber number, TimelineSpan span, std::chrono::nanoseconds cost,
                      const std::vector<Edge>& edges) {
  std::chrono::nanoseconds& lane_free = lane_free_.at(span.lane, pass_began_);
  span.start = lane_free;
  for (const Edge& edge : edges) {
    const Played& earlier = played(edge.task);
    if (earlier.end <= span.start) continue;
    span.start = earlier.end;
    span.waited_for = earlier.lane;
  }
  span.end = span.start + cost;
  lane_free = span.end;
  end_ = std::max(end_, span.end);
  played_[static_cast<size_t>(number - first_played_)] = {
      .end = span.end, .lane = span.lane, .over = true};
  timeline_.record(span);
}

}  // namespace klotski
