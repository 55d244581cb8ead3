#include "schedule/simulate.h"

#include <algorithm>

namespace klotski {

Simulation::Simulation(Cost cost, Routing routing, Timeline& timeline)
    : cost_(std::move(cost)), routing_(std::move(routing)), timeline_(timeline) {}

void Simulation::begin_pass() {
  play_out();
  ++step_;
  for (const auto& [number, edges] : withdrawn_) {  // an earlier one first
    const std::chrono::nanoseconds end = *end_of(number);
    Played& over = played_[static_cast<size_t>(number - first_played_)];
    over.end = end;
    over.over = true;
  }
  withdrawn_.clear();
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
    TimelineSpan span = span_of(task);
    span.step = step_;
    if (brings_weights(task.work)) {
      queues_.at(task.lane).push(number, task.priority);
      if (is_guess(task)) remember_guess(task, number);
      waiting_.push_back({.span = span,
                          .cost = cost_(task),
                          .first_edge = waiting_edges_.size(),
                          .edges = edges.size()});
      waiting_edges_.insert(waiting_edges_.end(), edges.begin(), edges.end());
      ++left_;
      continue;
    }
    for (const Edge& edge : edges) play_until(edge.task);
    play(number, span, cost_(task), edges);
  }
}

// A unit that is guessed again was there before: its earlier tasks are over.
void Simulation::remember_guess(const Task& task, TaskNumber number) {
  std::vector<Guess>& chain = guesses_[{task.unit, task.tier}];
  if (task.work != Work::settle) chain.clear();
  chain.push_back({task, number});
}

void Simulation::play_until(TaskNumber number) {
  while (!end_of(number)) play_next();
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
  play(next.number, task.span, task.cost, edges_of(task));
  queues_.at(next.lane).erase(next.place, next.place + 1);
  if (--left_ == 0) forget_waiting();
}

void Simulation::forget_waiting() {
  waiting_.clear();
  waiting_edges_.clear();
}

// Plays the tasks that begin before a time.
void Simulation::play_before(std::chrono::nanoseconds time) {
  while (const std::optional<Next> next = first_of_lanes()) {
    if (next->start >= time) return;
    play(*next);
  }
}

// Whether a waiting task beyond the chain depends on one of the chain.
bool Simulation::is_needed(const std::vector<Guess>& chain) const {
  const auto in_chain = [&](TaskNumber number) {
    return std::any_of(chain.begin(), chain.end(),
                       [&](const Guess& guess) { return guess.number == number; });
  };
  for (const auto& [lane, queue] : queues_) {
    for (size_t place = 0; place < queue.size(); ++place) {
      if (in_chain(queue[place])) continue;
      const std::span<const Edge> edges = edges_of(waiting(queue[place]));
      if (std::any_of(edges.begin(), edges.end(),
                      [&](const Edge& edge) { return in_chain(edge.task); })) {
        return true;
      }
    }
  }
  return false;
}

// The time of the withdrawal is the end of what has been computed: a schedule withdraws when it
// knows a gate's choices.
bool Simulation::withdraw(const WeightUnit& unit, TierId tier) {
  std::chrono::nanoseconds now = pass_began_;
  for (const auto& [lane, free] : lane_free_) {
    if (lane.kind == LaneKind::compute) now = std::max(now, free);
  }
  play_before(now);
  const auto found = guesses_.find({unit, tier});
  if (found == guesses_.end()) return false;
  const std::vector<Guess> chain = std::move(found->second);
  guesses_.erase(found);
  const bool any_over = std::any_of(chain.begin(), chain.end(),
                                    [&](const Guess& guess) { return played(guess.number).over; });
  if (any_over || is_needed(chain)) return false;
  for (const Guess& guess : chain) {
    dependencies_.withdraw(guess.task, guess.number);
    const std::span<const Edge> edges = edges_of(waiting(guess.number));
    withdrawn_[guess.number].assign(edges.begin(), edges.end());
    queues_.at(guess.task.lane).remove(guess.number);
  }
  left_ -= chain.size();
  if (left_ == 0) forget_waiting();
  return true;
}

// The end of a task, once it is known. A withdrawn one is over with all that it waited for: tasks
// that fill its place later wait for these.
std::optional<std::chrono::nanoseconds> Simulation::end_of(TaskNumber number) const {
  if (played(number).over) return played(number).end;
  const auto withdrawn = withdrawn_.find(number);
  if (withdrawn == withdrawn_.end()) return std::nullopt;
  std::chrono::nanoseconds end{0};
  for (const Edge& edge : withdrawn->second) {
    const std::optional<std::chrono::nanoseconds> earlier = end_of(edge.task);
    if (!earlier) return std::nullopt;
    end = std::max(end, *earlier);
  }
  return end;
}

// The task that the lane takes next, among those whose dependencies are all played: the first one
// that can begin as early as any. Whether an earlier task is over is asked before end_of(), here
// and in play(): its optional takes an eighth of a plan's time.
std::optional<Simulation::Next> Simulation::next_of(Lane lane, const LaneQueue& queue) const {
  const std::chrono::nanoseconds free = lane_free(lane);
  std::optional<Next> next;
  for (size_t place = 0; place < queue.size(); place = queue.next_priority(place)) {
    const Waiting& task = waiting(queue[place]);
    std::chrono::nanoseconds start = free;
    bool known = true;
    for (const Edge& edge : edges_of(task)) {
      if (const Played& earlier = played(edge.task); earlier.over) {
        start = std::max(start, earlier.end);
      } else if (const auto end = end_of(edge.task)) {
        start = std::max(start, *end);
      } else {
        known = false;
      }
    }
    if (known && (!next || start < next->start)) next = Next{lane, place, queue[place], start};
    if (next && next->start == free) break;  // nobody can be earlier
  }
  return next;
}

// A task waits until its dependencies are over, even where a device waits by itself: the later task
// then has begun, but goes on no sooner.
void Simulation::play(TaskNumber number, TimelineSpan span, std::chrono::nanoseconds cost,
                      std::span<const Edge> edges) {
  std::chrono::nanoseconds& lane_free = lane_free_.at(span.lane, pass_began_);
  span.start = lane_free;
  for (const Edge& edge : edges) {
    const Played& earlier = played(edge.task);
    const std::chrono::nanoseconds end = earlier.over ? earlier.end : *end_of(edge.task);
    if (end <= span.start) continue;
    span.start = end;
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
