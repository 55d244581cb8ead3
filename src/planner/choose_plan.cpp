#include "planner/choose_plan.h"

#include <algorithm>

#include "base/error.h"
#include "planner/expert_costs.h"
#include "planner/sampled_prediction.h"

namespace klotski {

namespace {

// Whether the CPU of a machine with a device may compute, and its times are known.
bool cpu_may_share(const PlanInputs& inputs) {
  return inputs.run.memory.device && inputs.run.cpu &&
         !expert_costs(inputs.prediction_inputs(), {}, 1).empty();
}

SearchSpace search_space(const PlanInputs& inputs, const RunLimits& limits, int64_t sequences) {
  const ModelDescription& model = inputs.run.model;
  SearchSpace space{.sequences = sequences,
                    .micro_batch = limits.micro_batch,
                    .micro_batches = limits.micro_batches,
                    .strategy = limits.strategy,
                    .hot_experts = limits.hot_experts};
  for (const Layer& layer : model.layers) {
    if (!layer.feed_forward.routed) continue;
    space.most_experts = std::max(space.most_experts, layer.feed_forward.experts);
    space.top_k = layer.feed_forward.router.top_k;
  }
  if (!cpu_may_share(inputs)) return space;
  for (size_t i = 0; i < kStrategies; ++i) {
    const auto strategy = static_cast<Strategy>(i);
    if (properties_of(strategy).needs_device) space.strategies.push_back(strategy);
  }
  space.cpu_attention = {false, true};
  if (limits.cpu_attention) space.cpu_attention = {*limits.cpu_attention};
  if (limits.strategy && properties_of(*limits.strategy).needs_cpu_attention) {
    space.cpu_attention = {true};
  }
  return space;
}

// Counts of choices in which experts that were not seen count as well, together about as much as
// those that were seen once (Good and Turing's estimate), each at most once.
std::vector<double> with_unseen(std::vector<double> counts) {
  const auto unseen = static_cast<double>(std::count(counts.begin(), counts.end(), 0.0));
  const auto once = static_cast<double>(std::count(counts.begin(), counts.end(), 1.0));
  if (unseen > 0) {
    std::replace(counts.begin(), counts.end(), 0.0, std::min(1.0, (once + 1.0) / unseen));
  }
  return counts;
}

}  // namespace

PredictionInputs prediction_inputs_of(const ModelDescription& model, const UnitLayouts& layouts,
                                      const Profile& profile, const ExpertShares& shares) {
  return {.model = model,
          .profile = profile,
          .facts = [&from = layouts](const WeightUnit& unit) { return facts_of(from, unit); },
          .shares = shares};
}

PlannedWork planned_work(const Workload& workload) {
  const int64_t tokens = std::max<int64_t>(2, workload.usual_tokens());
  const int64_t generated = std::clamp<int64_t>(workload.generated_tokens, 1, tokens - 1);
  return {.sequences = workload.sequences,
          .prompt_tokens = tokens - generated,
          .generated_tokens = generated};
}

ExpertShares shares_in(const CorrelationTable& table, const ModelDescription& model) {
  std::vector<std::vector<double>> shares;
  size_t routed = 0;
  for (const Layer& layer : model.layers) {
    std::vector<double> counts(static_cast<size_t>(layer.feed_forward.experts), 0.0);
    if (layer.feed_forward.routed) {
      const std::span<const uint32_t> seen = table.popularity(routed++);
      counts.assign(seen.begin(), seen.end());
    }
    shares.push_back(with_unseen(std::move(counts)));
  }
  return ExpertShares(model, std::move(shares));
}

namespace {

// Gives choices their memory, within one set of limits, whatever other processes take meanwhile.
class Fitting {
 public:
  Fitting(const PlanInputs& inputs, const RunLimits& limits, const Workload& workload)
      : inputs_(inputs), limits_(limits), workload_(workload) {
    const MachineMemory& memory = inputs.run.memory;
    limits_.ram_bytes = ram_limit(limits, memory);
    if (memory.device) limits_.vram_bytes = vram_limit(limits, *memory.device);
  }

  RunPlan plan_of(const Choice& choice) const {
    RunLimits fixed = limits_;
    fixed.micro_batch = choice.micro_batch;
    fixed.micro_batches = choice.micro_batches;
    fixed.strategy = choice.strategy;
    if (choice.hot_experts > 0) fixed.hot_experts = choice.hot_experts;
    fixed.cpu_attention = choice.cpu_attention;
    RunPlan plan = plan_run(inputs_.run, fixed, workload_);
    if (inputs_.run.memory.device) plan.policy.cache.expert_shares = inputs_.shares.all();
    if (plan.policy.division.shared_rows > 0) {
      plan.policy.division.costs = expert_costs(inputs_.prediction_inputs(), plan.policy,
                                                static_cast<double>(workload_.usual_tokens()));
    }
    return plan;
  }

  std::optional<FittedGroup> operator()(const Choice& choice) const {
    try {
      const RunPlan plan = plan_of(choice);
      return FittedGroup{.policy = plan.policy,
                         .memory = plan.memory,
                         .host = plan.host,
                         .at_once = sequences_at_once(inputs_.run.model, plan, workload_)};
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::does_not_fit) throw;
      return {};
    }
  }

 private:
  const PlanInputs& inputs_;
  RunLimits limits_;
  const Workload& workload_;
};

}  // namespace

ChosenPlan choose_plan(const PlanInputs& inputs, const RunLimits& limits,
                       const Workload& workload) {
  const Fitting fit(inputs, limits, workload);
  const SearchSpace space = search_space(inputs, limits, workload.sequences);
  std::vector<Candidate> candidates =
      search(inputs.prediction_inputs(), planned_work(workload), space, fit);
  if (candidates.empty()) {
    fit.plan_of(group_sizes(space).front());  // says why
    fail(ErrorKind::internal, "a group that did not fit fits now");
  }
  const FittedGroup& chosen = candidates.front().group;
  return {{chosen.policy, chosen.memory, chosen.host}, candidates};
}

double best_rough_rate(const PlanInputs& inputs, const RunLimits& limits, const Workload& workload,
                       const std::vector<Choice>& choices) {
  const Fitting fit(inputs, limits, workload);
  std::vector<Candidate> candidates;
  for (const Choice& choice : choices) {
    if (std::optional<FittedGroup> group = fit(choice)) {
      candidates.push_back({choice, std::move(*group), {}});
    }
  }
  const PlannedWork work = planned_work(workload);
  const PredictionInputs with = inputs.prediction_inputs();
  const int64_t experts = search_space(inputs, limits, workload.sequences).most_experts;
  SampledPrediction(with, work, experts, Care::rough).of_all(candidates);
  double best = 0.0;
  for (const Candidate& one : candidates) {
    best = std::max(best, one.prediction.tokens_per_second());
  }
  return best;
}

}  // namespace klotski
