#pragma once

#include "engine/run_plan.h"
#include "planner/search.h"

namespace klotski {

// A plan that a search chose, and what it was chosen from.
struct ChosenPlan {
  RunPlan run;
  std::vector<Candidate> candidates;  // the chosen one first, the others by their predicted rate
};

// What a choice rests on besides the limits and the work.
struct PlanningGround {
  const ModelDescription& model;
  const UnitLayouts& layouts;
  const Profile& profile;
  const ExpertShares& shares;
  const PipelineOptions& options;
};

// Tries group sizes, gives each its memory and simulates the work: the fastest is chosen. Sizes
// that the limits fix are kept. Refuses (does_not_fit) where no size fits, as plan_run does.
ChosenPlan choose_plan(const PlanningGround& ground, const RunLimits& limits,
                       const PlannedWork& work);

// The same work as memory sees it.
Workload workload_of(const PlannedWork& work);

}  // namespace klotski
