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
  guesses_.clear();
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
      if (is_guess(task)) guesses_.push_back({task, number});
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
void Simulation::play_next() { play(*first_of_lanes()); }

std::optional<Simulation::Next> Simulation::first_of_lanes() const {
  std::optional<Next> first;
  for (const auto& [lane, queue] : queues_) {
    const std::optional<Next> next = next_of(lane, queue);
    if (next && (!first || next->start < first->start)) first = next;
  }
  return first;
}

void Simulation::play(const Next& next) {
  const Waiting& task = waiting(next.number);
  play(next.number, task.span, task.cost, task.edges);
  queues_.at(next.lane).erase(next.place, next.place + 1);
  if (--left_ == 0) waiting_.clear();
}

// Plays the tasks that begin before a time.
void Simulation::play_before(std::chrono::nanoseconds time) {
  while (const std::optional<Next> next = first_of_lanes()) {
    if (next->start >= time) return;
    play(*next);
  }
}

std::vector<Simulation::Guess> Simulation::guesses_of(const WeightUnit& unit, TierId tier) const {
  std::vector<Guess> found;
  for (const Guess& guess : guesses_) {
    if (guess.task.unit == unit && guess.task.tier == tier) found.push_back(guess);
  }
  return found;
}

// Whether a waiting task depends on it.
bool Simulation::is_needed(TaskNumber number) const {
  return std::any_of(queues_.begin(), queues_.end(), [&](const auto& of_lane) {
    for (size_t place = 0; place < of_lane.second.size(); ++place) {
      const std::vector<Edge>& edges = waiting(of_lane.second[place]).edges;
      if (std::any_of(edges.begin(), edges.end(),
                      [&](const Edge& edge) { return edge.task == number; })) {
        return true;
      }
    }
    return false;
  });
}

// The time of the withdrawal is the end of what has been computed: a schedule withdraws when it
// knows a gate's choices.
bool Simulation::withdraw(const WeightUnit& unit, TierId tier) {
  std::chrono::nanoseconds now = pass_began_;
  for (const auto& [lane, free] : lane_free_) {
    if (lane.kind == LaneKind::compute) now = std::max(now, free);
  }
  play_before(now);
  const std::vector<Guess> chain = guesses_of(unit, tier);
  const bool any_over = std::any_of(chain.begin(), chain.end(),
                                    [&](const Guess& guess) { return played(guess.number).over; });
  if (chain.empty() || any_over || is_needed(chain.back().number)) return false;
  for (size_t i = chain.size(); i-- > 0;) {
    dependencies_.withdraw(chain[i].task, chain[i].number);
    leave_unplayed(chain[i].number);
  }
  return true;
}

// Later tasks that fill its place still wait for all that it waited for.
void Simulation::leave_unplayed(TaskNumber number) {
  const std::vector<Edge> edges = waiting(number).edges;
  queues_.at(played(number).lane).remove(number);
  if (--left_ == 0) waiting_.clear();
  std::erase_if(guesses_, [&](const Guess& guess) { return guess.number == number; });
  std::chrono::nanoseconds end{0};
  for (const Edge& edge : edges) {
    play_until(edge.task);
    end = std::max(end, played(edge.task).end);
  }
  Played& left = played_[static_cast<size_t>(number - first_played_)];
  left.end = end;
  left.over = true;
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
