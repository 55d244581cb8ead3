#pragma once

// A look at the passes of a plan: the timeline, and the weights that are read again in every pass.

#include <vector>

#include "planner/prediction.h"

namespace klotski {

struct PreviewedUnit {
  WeightUnit unit;
  double memory_share = 0.0;  // share of the passes in which it needed no transfer: 0 to 1
};

struct Preview {
  std::vector<TimelineSpan> spans;       // spans of the last passes
  std::vector<PreviewedUnit> placement;  // every unit of the model
};

// Plays a pass of the work's prompts, then passes in which all sequences decode: spans and shares
// are of the latter.
Preview preview(const PredictionInputs& with, const Policy& policy, const PlannedWork& work);

}  // namespace klotski
