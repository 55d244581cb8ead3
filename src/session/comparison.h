#pragma once

#include <string>

#include "hardware/run_record.h"
#include "session/measure.h"

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

// Adds the run to the history (probe/history.h), from which `klotski doctor` tells how well plans
// foresee. Returns why it could not be kept; empty where it was.
[[nodiscard]] std::string remember_run(const ComparedRun& run);

}  // namespace klotski
