#pragma once

#include <optional>
#include <string>
#include <vector>

#include "planner/block_model.h"
#include "session/foresight.h"

namespace klotski {

// One decision of a plan, and why it was not taken otherwise.
struct Reason {
  std::string what;
  std::string chosen;
  std::string why;
};

// The rate that the workload would reach if the machine or the model were changed.
struct WhatIf {
  std::string change;
  double tokens_per_second = 0;
};

// The lane that has the least time to spare.
Lane binding_lane(const TimelineTotals& totals);

// A plan for a workload, chosen by prediction, with its reasons and the gains of possible changes.
class Planning {
 public:
  // `chosen` is what choose_plan() gave for the rest. The model, and the target that the foresight
  // is about, must live longer.
  Planning(const OpenedModel& opened, Foresight foresight, const RunLimits& limits,
           const Workload& workload, ChosenPlan chosen);

  const ModelDescription& model() const { return opened_.description; }
  const Workload& workload() const { return workload_; }
  const Probed& probed() const { return foresight_.probed(); }
  const RunPlan& run() const { return chosen_.run; }
  PlannedWork work() const;  // the workload as the chosen plan simulates it
  const std::vector<Candidate>& candidates() const { return chosen_.candidates; }
  const Prediction& prediction() const { return chosen_.candidates.front().prediction; }
  PredictionInputs prediction_inputs() const { return foresight_.prediction_inputs(); }

  std::vector<Reason> reasons() const;
  const std::vector<WhatIf>& what_ifs() const { return what_ifs_; }
  // Times of a routed layer while the group decodes, for the papers' models.
  std::optional<BlockModel> block() const;

 private:
  std::vector<WhatIf> find_what_ifs() const;
  std::vector<Choice> best_sizes() const;
  double rate_with_small_experts() const;

  const OpenedModel& opened_;
  RunLimits limits_;
  Workload workload_;
  Foresight foresight_;
  ChosenPlan chosen_;
  std::vector<WhatIf> what_ifs_;
};

}  // namespace klotski
