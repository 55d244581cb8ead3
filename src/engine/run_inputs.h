#pragma once

#include "engine/pipeline.h"
#include "engine/target.h"
#include "planner/run_plan.h"

namespace klotski {

// The machine's memory now, for plans of runs on this target.
MachineMemory machine_memory(const Target& target, const PipelineOptions& options);

// Inputs of plans of a model on this target, with the machine's memory as it is now. The
// references must live longer.
RunInputs run_inputs(const ModelDescription& model, const UnitLayouts& layouts,
                     const Target& target, const PipelineOptions& options);

}  // namespace klotski
