#pragma once

#include "planner/pass_simulator.h"

namespace klotski {

// Measured seconds of the policy's groups for an expert of each layer on a device and on the CPU,
// both working at once; nothing where the CPU was not measured. `all_positions`: positions before a
// decoding row.
LayerCosts expert_costs(const PredictionInputs& with, const Policy& policy, double all_positions);

}  // namespace klotski
