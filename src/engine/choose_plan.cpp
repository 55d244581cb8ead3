#include "engine/choose_plan.h"

#include "base/error.h"

namespace klotski {

Workload workload_of(const PlannedWork& work) {
  return {.sequences = work.sequences,
          .tokens_per_sequence = work.prompt_tokens + work.generated_tokens,
          .prompt_tokens = work.prompt_tokens};
}

ChosenPlan choose_plan(const PlanningGround& ground, const RunLimits& limits,
                       const PlannedWork& work) {
  const Workload workload = workload_of(work);
  const auto plan_of = [&](GroupSize size) {
    RunLimits fixed = limits;
    fixed.micro_batch = size.micro_batch;
    fixed.micro_batches = size.micro_batches;
    return plan_run(ground.model, ground.layouts, fixed, workload, ground.options);
  };
  const auto fit = [&](GroupSize size) -> std::optional<FittedGroup> {
    try {
      const RunPlan plan = plan_of(size);
      return FittedGroup{plan.policy, sequences_at_once(ground.model, plan, workload)};
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::does_not_fit) throw;
      return {};
    }
  };
  const Machinery with{
      .model = ground.model,
      .profile = ground.profile,
      .facts = [&](const WeightUnit& unit) { return facts_of(ground.layouts, unit); },
      .shares = ground.shares};
  std::vector<Candidate> candidates = search(
      with, work, group_sizes(work.sequences, limits.micro_batch, limits.micro_batches), fit);
  if (candidates.empty()) {
    // Says by how much the smallest does not fit.
    return {plan_of({limits.micro_batch.value_or(1), limits.micro_batches.value_or(1)}), {}};
  }
  RunPlan run = plan_of(candidates.front().size);
  return {std::move(run), std::move(candidates)};
}

}  // namespace klotski
