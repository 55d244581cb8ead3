#pragma once

#include <vector>

#include "schedule/task.h"

namespace klotski {

// A receiver of tasks that carries them out: the executor, or a simulation of it.
class TaskSink {
 public:
  virtual ~TaskSink() = default;
  virtual void submit(Fragment fragment) = 0;
  // Experts that the rows of a micro-batch chose, ascending; waits for its gate. A layer that is
  // not routed has chosen its only expert before.
  virtual std::vector<ExpertId> chosen(LayerId layer, int32_t micro_batch) = 0;
  // Tells that all experts of the layer were submitted: while they run is the time to learn from
  // its choices, before the next layer's experts are predicted.
  virtual void layer_submitted(LayerId) {}
  // Takes back the tasks that bring a unit to a memory by guess (is_guess), all of them or none.
  // False: one of them has begun or is needed, so the unit comes or is there.
  virtual bool withdraw(const WeightUnit& unit, TierId tier) = 0;
};

}  // namespace klotski
