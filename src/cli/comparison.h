#pragma once

#include <string>

#include "cli/load.h"
#include "cli/measure.h"
#include "hardware/run_record.h"

namespace klotski {

RunFigures figures_of(const Prediction& prediction);
RunFigures figures_of(const Measurement& measured);

// A run whose plan came with a prediction.
struct ComparedRun {
  std::string command;  // "batch", "bench"
  const OpenedModel& opened;
  const RunPlan& plan;
  int64_t sequences = 0;
  RunFigures planned;
  RunFigures measured;
};

// Both side by side as text; doctor remembers it.
std::string compare(const ComparedRun& run);

}  // namespace klotski
