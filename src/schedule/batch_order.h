#pragma once

#include "schedule/strategy.h"

namespace klotski {

// Experts batch by batch, as models are written: the experts that a batch chose run before the next
// batch begins. An expert stays until the last batch that chose it is done.
void run_experts_in_batch_order(FragmentBuilder& build, LayerId layer, const Activated& activated);

}  // namespace klotski
