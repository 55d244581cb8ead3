#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "schedule/dependencies.h"
#include "schedule/lane_queue.h"
#include "schedule/pass.h"
#include "timeline/lane_map.h"
#include "timeline/timeline.h"

namespace klotski {

// Plays fragments on lanes that take `cost` for a task: each lane does its tasks in the executor's
// order (lane_queue.h), each as soon as its dependencies, which are the executor's, are done.
// Without threads. Tasks that bring weights wait in their queue, where later ones of a higher
// priority overtake them, until another task needs them or all is played out.
class Simulation : public TaskSink {
 public:
  using Cost = std::function<std::chrono::nanoseconds(const Task&)>;
  using Routing = std::function<std::vector<ExpertId>(LayerId, int32_t micro_batch)>;

  Simulation(Cost cost, Routing routing, Timeline& timeline);

  void submit(Fragment fragment) override;
  std::vector<ExpertId> chosen(LayerId layer, int32_t micro_batch) override {
    return routing_(layer, micro_batch);
  }
  bool withdraw(const WeightUnit& unit, TierId tier) override;

  // A pass begins when the pass before it has ended: its requests were not known earlier, though
  // units that the pass before asked for ahead may still be on their way. Tasks of the pass before
  // the last count as done, since the last pass had to wait for those whose places it used. Spans
  // of its tasks count to a step of their own, 1 for the first pass that is begun.
  void begin_pass();

  // Plays all that waits: the timeline then has every task.
  void play_out();

  // End of the last pass; units that were asked for ahead may arrive long after. This and the next
  // two play out first.
  std::chrono::nanoseconds pass_end();
  std::chrono::nanoseconds end();           // end of the last task
  std::chrono::nanoseconds end(Lane lane);  // end of the lane's last task

 private:
  struct Played {
    std::chrono::nanoseconds end{0};
    Lane lane{};
    bool over = false;
    size_t waiting = 0;  // its index in waiting_, until it is over
  };
  struct Waiting {
    TimelineSpan span;
    std::chrono::nanoseconds cost;
    size_t first_edge;  // in waiting_edges_
    size_t edges;
  };
  // A task that brings a unit by a guess.
  struct Guess {
    Task task;
    TaskNumber number;
  };
  struct Next {
    Lane lane;
    size_t place;  // index in the lane's queue
    TaskNumber number;
    std::chrono::nanoseconds start;
  };

  const Played& played(TaskNumber number) const {
    return played_[static_cast<size_t>(number - first_played_)];
  }
  const Waiting& waiting(TaskNumber number) const { return waiting_[played(number).waiting]; }
  void play_until(TaskNumber number);
  void play_next();
  std::optional<Next> first_of_lanes() const;
  void play(const Next& next);
  void play_before(std::chrono::nanoseconds time);
  void remember_guess(const Task& task, TaskNumber number);
  bool is_needed(const std::vector<Guess>& chain) const;
  std::optional<std::chrono::nanoseconds> end_of(TaskNumber number) const;
  std::optional<Next> next_of(Lane lane, const LaneQueue& queue) const;
  std::chrono::nanoseconds lane_free(Lane lane) const;
  void play(TaskNumber number, TimelineSpan span, std::chrono::nanoseconds cost,
            std::span<const Edge> edges);
  std::span<const Edge> edges_of(const Waiting& task) const {
    return std::span(waiting_edges_).subspan(task.first_edge, task.edges);
  }
  void forget_waiting();

  Cost cost_;
  Routing routing_;
  Timeline& timeline_;
  Dependencies dependencies_;
  int64_t step_ = 0;              // passes that were begun
  TaskNumber last_pass_ = 0;      // the first task of the last pass
  std::vector<Played> played_;    // by task number, from last_pass_ on or earlier
  TaskNumber first_played_ = 0;   // the number of the first one there
  LaneMap<LaneQueue> queues_;     // tasks that bring weights
  std::vector<Waiting> waiting_;  // tasks that bring weights, and some that are over
  std::vector<Edge> waiting_edges_;
  // The tasks of each guess of the pass at hand, unless it was withdrawn; some are over.
  std::map<std::pair<WeightUnit, TierId>, std::vector<Guess>> guesses_;
  std::map<TaskNumber, std::vector<Edge>> withdrawn_;  // tasks of the pass, and what they wait for
  size_t left_ = 0;                                    // tasks of queues_
  std::chrono::nanoseconds pass_began_{0};             // no lane does anything of the pass before
  LaneMap<std::chrono::nanoseconds> lane_free_;
  std::chrono::nanoseconds end_{0};
};

}  // namespace klotski
