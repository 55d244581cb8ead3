#pragma once

#include <array>
#include <chrono>
#include <functional>

#include "schedule/dependencies.h"
#include "schedule/pass.h"
#include "timeline/timeline.h"

namespace klotski {

// Plays fragments on lanes that take `cost` for a task: each lane does its tasks in program order,
// each as soon as what it waits for is done. The same dependencies as in the executor, no threads.
class Simulation : public TaskSink {
 public:
  using Cost = std::function<std::chrono::nanoseconds(const Task&)>;
  using Routing = std::function<std::vector<ExpertId>(LayerId, int32_t micro_batch)>;

  Simulation(Cost cost, Routing routing, Timeline& timeline);

  void submit(Fragment fragment) override;
  std::vector<ExpertId> chosen(LayerId layer, int32_t micro_batch) override {
    return routing_(layer, micro_batch);
  }

  // A pass begins when the one before it has ended: what it asks for was not known earlier, though
  // what that one asked for ahead may still be on its way. The tasks of the pass before the last
  // are done, since the last had to wait for whatever it used of them.
  void begin_pass();

  // Of the last pass: what was asked for ahead may arrive long after.
  std::chrono::nanoseconds pass_end() const;
  std::chrono::nanoseconds end() const { return end_; }  // of the last task
  // Of the last task of a lane.
  std::chrono::nanoseconds end(Lane lane) const { return lane_free_[lane_index(lane)]; }

 private:
  struct Ended {
    std::chrono::nanoseconds at{0};
    Lane lane = Lane::compute;
  };

  Cost cost_;
  Routing routing_;
  Timeline& timeline_;
  Dependencies dependencies_;
  TaskNumber last_pass_ = 0;    // its first task
  std::vector<Ended> ended_;    // by task number, from last_pass_ on or earlier
  TaskNumber first_ended_ = 0;  // whose end comes first there
  std::array<std::chrono::nanoseconds, kLaneCount> lane_free_{};
  std::chrono::nanoseconds end_{0};
};

}  // namespace klotski
