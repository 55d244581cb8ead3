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
  RunLimits base = limits;
  base.ram_bytes =
      ram_limit(limits, ground.options);  // the same for every size, whatever others take meanwhile
  if (limits.strategy == Strategy::simple) base.micro_batches = 1;
  const auto plan_of = [&](GroupSize size) {
    RunLimits fixed = base;
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
  std::vector<Candidate> candidates =
      search(with, work, group_sizes(work.sequences, base.micro_batch, base.micro_batches), fit);
  if (candidates.empty()) {
    plan_of({base.micro_batch.value_or(1), base.micro_batches.value_or(1)});  // says why
    fail(ErrorKind::internal, "a group that did not fit fits now");
  }
  RunPlan run = plan_of(candidates.front().size);
  return {std::move(run), std::move(candidates)};
}

}  // namespace klotski
