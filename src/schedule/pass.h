#pragma once

#include "schedule/strategy.h"

namespace klotski {

// One pass of a group through all layers, logits left out.
void run_pass(Schedule& schedule, FragmentBuilder& build, TaskSink& sink);

}  // namespace klotski
