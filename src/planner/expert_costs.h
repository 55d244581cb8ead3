#pragma once

#include "planner/pass_simulator.h"

namespace klotski {

// What the policy's groups pay for an expert of each layer on a device and on the CPU beside it, as
// measured, both working at once; nothing where the CPU was not measured. `all_positions`:
// that a decoding row has before it.
LayerCosts expert_costs(const Machinery& with, const Policy& policy, double all_positions);

}  // namespace klotski
