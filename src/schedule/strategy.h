#pragma once

#include <memory>
#include <vector>

#include "schedule/builder.h"
#include "schedule/task_sink.h"

namespace klotski {

// Experts that the rows of each micro-batch chose: each once, ascending.
using Activated = std::vector<std::vector<ExpertId>>;
// Experts that the rows of any micro-batch chose: each once, ascending.
std::vector<ExpertId> union_of(const Activated& activated);

// One strategy. It is asked for every layer of a pass, in this order: which units to bring before
// the layer begins; then, attention being the same for all, how the gates run and what to do as
// each is finished; and with all of the routing in hand how the experts run.
class Schedule {
 public:
  virtual ~Schedule() = default;

  virtual void prefetch(FragmentBuilder& build, LayerId layer) = 0;
  // Gates. Unless a strategy says otherwise a gate waits for its own weights alone, and the experts
  // that it chose are requested at once.
  virtual void gate(FragmentBuilder& build, LayerId layer, int32_t micro_batch) {
    build.gate(layer, micro_batch);
  }
  // Called when the first gate of a layer has finished, before any expert is requested for it:
  // takes back loads that were only guesses and have not begun. The fragment is empty.
  virtual void withdraw_guesses(FragmentBuilder&, TaskSink&) {}
  virtual void gate_finished(FragmentBuilder& build, LayerId layer, int32_t micro_batch,
                             const std::vector<ExpertId>& chosen) {
    build.request_chosen(layer, micro_batch, chosen);
  }
  virtual void experts(FragmentBuilder& build, LayerId layer, const Activated& activated) = 0;

  // All layers of a pass: unless a strategy says otherwise layer by layer, as above. Hands
  // fragments on as soon as they can be known; units that the next pass begins with are requested
  // last.
  virtual void layers(FragmentBuilder& build, TaskSink& sink);
};

std::unique_ptr<Schedule> make_schedule(Strategy strategy);

// The strategies, each in a file of its own.
std::unique_ptr<Schedule> make_simple();
std::unique_ptr<Schedule> make_multi_batch();
std::unique_ptr<Schedule> make_hot_prefetch();
std::unique_ptr<Schedule> make_klotski();
std::unique_ptr<Schedule> make_priority_prefetch();
std::unique_ptr<Schedule> make_cgopipe();
std::unique_ptr<Schedule> make_hybrid();

}  // namespace klotski
