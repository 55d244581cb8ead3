#pragma once

#include "experts/correlation_table.h"
#include "planner/run_plan.h"
#include "planner/search.h"

namespace klotski {

// A plan that a search chose, and the candidates it was chosen from.
struct ChosenPlan {
  RunPlan run;
  std::vector<Candidate> candidates;  // the chosen one first, then by predicted rate

  double rate() const { return candidates.front().prediction.tokens_per_second(); }
};

// The model, the machine's rates and the popularity of experts, as predictions take them. All of it
// must live longer.
PredictionInputs prediction_inputs_of(const ModelDescription& model, const UnitLayouts& layouts,
                                      const Profile& profile, const ExpertShares& shares);

// Inputs of a choice besides the limits and the work.
struct PlanInputs {
  RunInputs run;
  const Profile& profile;
  const ExpertShares& shares;

  PredictionInputs prediction_inputs() const {
    return prediction_inputs_of(run.model, run.layouts, profile, shares);
  }
};

// Tries group sizes, strategies and K, gives each its memory and simulates the work: the fastest is
// chosen. Fields that the limits fix are kept. Refuses (does_not_fit) where nothing fits, as
// plan_run does.
ChosenPlan choose_plan(const PlanInputs& inputs, const RunLimits& limits, const Workload& workload);

// The rate in tokens a second of the fastest of some choices, roughly predicted: to be compared
// with the rate of these choices on another machine or within other limits. 0 where none of them
// fits.
double best_rough_rate(const PlanInputs& inputs, const RunLimits& limits, const Workload& workload,
                       const std::vector<Choice>& choices);

// The work as it is simulated: all sequences of the usual length.
PlannedWork planned_work(const Workload& workload);

// How often experts were chosen, as a table has seen it; evenly where it has seen nothing.
ExpertShares shares_in(const CorrelationTable& table, const ModelDescription& model);

}  // namespace klotski
