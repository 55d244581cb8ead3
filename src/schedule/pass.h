#pragma once

#include "schedule/strategy.h"

namespace klotski {

// Who carries tasks out: the executor, or a simulation of it.
class TaskSink {
 public:
  virtual ~TaskSink() = default;
  virtual void submit(Fragment fragment) = 0;
  // What the rows of a micro-batch chose, ascending; waits for its gate. A layer that is not routed
  // has chosen its only expert before.
  virtual std::vector<ExpertId> chosen(LayerId layer, int32_t micro_batch) = 0;
};

// One pass of a group through all layers, logits left out: asks the strategy for fragments as soon
// as they can be known and hands them on. What the next pass begins with is requested at the end.
void run_pass(const Schedule& schedule, FragmentBuilder& build, TaskSink& sink);

}  // namespace klotski
