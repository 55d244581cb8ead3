#include "session/planning.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/bytes.h"
#include "planner/sampled_prediction.h"

namespace klotski {

namespace {

// The profile of a machine that computes `factor` times as fast.
Profile with_faster_arithmetic(Profile profile, double factor) {
  for (LayerProfile& layer : profile.model.kinds) {
    for (const LayerCurve& one : kLayerCurves) {
      layer.*one.curve = (layer.*one.curve).faster(factor);
    }
  }
  profile.model.embed = profile.model.embed.faster(factor);
  profile.model.logits = profile.model.logits.faster(factor);
  return profile;
}

// The fastest of the candidates that differ from the chosen one as `other` says.
template <typename Other>
const Candidate* best_other(const std::vector<Candidate>& candidates, const Other& other) {
  const Candidate* best = nullptr;
  for (const Candidate& candidate : candidates) {
    if (!other(candidate.choice)) continue;
    if (best == nullptr ||
        candidate.prediction.tokens_per_second() > best->prediction.tokens_per_second()) {
      best = &candidate;
    }
  }
  return best;
}

// Why these units of a kind are in memory, and not all.
const char* why_these(UnitKind kind, const Policy& policy) {
  if (kind != UnitKind::expert) return "before experts: every token uses them";
  if (policy.cache.kept_experts > 0) return "those of each layer that are chosen most stay";
  if (policy.cache.eviction != "furthest") return "those that are used most stay";
  return "what is needed furthest from now leaves first, of those the least popular";
}

std::string strategy_of(const Choice& choice) {
  return describe_strategy(choice.strategy, choice.cpu_attention);
}

std::string hot_count_name(const Choice& choice) {
  return choice.hot_experts > 0 ? fmt::format("{} a layer", choice.hot_experts)
                                : "as many as a token chooses";
}

}  // namespace

Lane binding_lane(const TimelineTotals& totals) {
  Lane busiest = Lane::kCompute;
  for (const Lane lane : totals.used_lanes()) {
    if (totals.lane(lane).busy > totals.lane(busiest).busy) busiest = lane;
  }
  return busiest;
}

Planning::Planning(const OpenedModel& opened, Foresight foresight, const RunLimits& limits,
                   const Workload& workload, ChosenPlan chosen)
    : opened_(opened),
      limits_(limits),
      workload_(workload),
      foresight_(std::move(foresight)),
      chosen_(std::move(chosen)),
      what_ifs_(find_what_ifs()) {}

std::vector<Reason> Planning::reasons() const {
  const Choice& choice = candidates().front().choice;
  const auto against = [&](const Candidate* other, const std::string& name) {
    if (other == nullptr) return std::string("fixed, or nothing else fits");
    const double rate = other->prediction.tokens_per_second();
    return fmt::format("{} would reach {:.2f} tokens/s{}", name, rate,
                       rate > prediction().tokens_per_second()
                           ? ", within 1 %: then the smaller group and the usual settings are kept"
                           : "");
  };
  const Candidate* size = best_other(candidates(), [&](const Choice& c) {
    return c.group() != choice.group() && c.strategy == choice.strategy;
  });
  const Candidate* strategy = best_other(
      candidates(), [&](const Choice& c) { return strategy_of(c) != strategy_of(choice); });
  const Candidate* hot = best_other(candidates(), [&](const Choice& c) {
    return c.hot_experts != choice.hot_experts && c.strategy == choice.strategy;
  });
  std::vector<Reason> reasons;
  reasons.push_back(
      {"group", fmt::format("{} x {} sequences", choice.micro_batches, choice.micro_batch),
       against(size,
               size ? fmt::format("{} x {}", size->choice.micro_batches, size->choice.micro_batch)
                    : "")});
  reasons.push_back({"strategy", strategy_of(choice),
                     against(strategy, strategy ? strategy_of(strategy->choice) : "")});
  reasons.push_back({"hot experts", hot_count_name(choice),
                     against(hot, hot ? hot_count_name(hot->choice) : "")});
  const RunPlan& plan = run();
  const int64_t at_once = candidates().front().group.at_once;
  reasons.push_back(
      {"KV cache",
       format_bytes(plan.memory.kv_bytes) + " in memory" +
           (plan.policy.layout.compute().kv_spill_bytes > 0
                ? fmt::format(", {} {}", format_bytes(plan.policy.layout.compute().kv_spill_bytes),
                              plan.host ? "in RAM" : "in a file")
                : ""),
       fmt::format("room for {} sequences of {} tokens at once, {} wanted", at_once,
                   workload_.usual_tokens(), std::min(choice.group(), workload_.sequences))});
  for (const UnitKind kind :
       {UnitKind::attention, UnitKind::gate, UnitKind::dense, UnitKind::expert}) {
    const int64_t units = foresight_.layouts().units(kind);
    if (units == 0) continue;
    const int64_t slots = plan.policy.layout.compute().slots[index_of(kind)];
    reasons.push_back({std::string(unit_kind_name(kind)),
                       fmt::format("{} of {} in memory", std::min(slots, units), units),
                       slots >= units ? "all fit" : why_these(kind, plan.policy)});
  }
  return reasons;
}

// The rate with experts of four bits a weight and a scale for every 32 weights, in groups of the
// chosen size: fewer bytes are read, and more experts stay in memory. Multiplying them is taken to
// be as fast as with the stored weights. A rough prediction
// tells how many times as fast the run is.
double Planning::rate_with_small_experts() const {
  constexpr double kBitsOfSmall = 4.5;
  const WeightUnit expert = units_of(model(), UnitKind::expert).front();
  PredictionInputs with = prediction_inputs();
  const auto facts = with.facts;
  const double elements = 3.0 * static_cast<double>(model().hidden) *
                          static_cast<double>(model().layer(expert.layer).feed_forward.width);
  const double share =
      std::min(1.0, elements * kBitsOfSmall / 8.0 / static_cast<double>(facts(expert).read_bytes));
  with.facts = [&](const WeightUnit& unit) {
    UnitFacts found = facts(unit);
    if (unit.kind == UnitKind::expert) {
      for (uint64_t* bytes : {&found.read_bytes, &found.own_bytes}) {
        *bytes = static_cast<uint64_t>(static_cast<double>(*bytes) * share);
      }
    }
    return found;
  };
  Policy policy = run().policy;
  int64_t& slots = policy.layout.compute().slots[index_of(UnitKind::expert)];
  const int64_t more = std::min(foresight_.layouts().units(UnitKind::expert),
                                static_cast<int64_t>(static_cast<double>(slots) / share)) -
                       slots;
  slots += more;
  if (policy.cache.kept_experts > 0) policy.cache.kept_experts += more;
  for (ExpertCosts& costs : policy.division.costs.kinds) costs.link *= share;
  const PlannedWork planned = work();
  const auto rough_rate = [&](const PredictionInputs& inputs, const Policy& used) {
    const int64_t experts = model().layer(expert.layer).feed_forward.experts;
    return SampledPrediction(inputs, planned, experts, Care::rough)
        .of(used, planned.at_once)
        .tokens_per_second();
  };
  return prediction().tokens_per_second() * rough_rate(with, policy) /
         rough_rate(prediction_inputs(), run().policy);
}

PlannedWork Planning::work() const {
  PlannedWork work = planned_work(workload_);
  work.at_once = candidates().front().group.at_once;
  return work;
}

// The fastest choices of different group sizes: one of them is taken to be the fastest on a machine
// that differs a little.
std::vector<Choice> Planning::best_sizes() const {
  constexpr size_t kTried = 4;
  std::vector<Choice> best;
  for (const Candidate& one : candidates()) {
    const bool known = std::any_of(best.begin(), best.end(), [&](const Choice& other) {
      return other.group() == one.choice.group();
    });
    if (!known) best.push_back(one.choice);
    if (best.size() == kTried) break;
  }
  return best;
}

std::vector<WhatIf> Planning::find_what_ifs() const {
  const Profile& profile = foresight_.probed().profile;
  RunLimits same = limits_;
  same.hypothetical = true;
  const std::optional<MemoryPlan>& host = run().host;
  same.ram_bytes = host ? host->limit_bytes : run().memory.limit_bytes;
  if (host) same.vram_bytes = run().memory.limit_bytes;
  const std::vector<Choice> choices = best_sizes();
  const auto rough_rate = [&](const Profile& machine, const RunLimits& limits) {
    return best_rough_rate(foresight_.inputs(machine), limits, workload_, choices);
  };
  const double scale = prediction().tokens_per_second() / rough_rate(profile, same);
  // A better machine can carry out the plan for this one: rates below its own are inaccuracies of
  // rough predictions.
  const auto rate_on = [&](const Profile& machine, const RunLimits& limits) {
    return std::max(scale * rough_rate(machine, limits), prediction().tokens_per_second());
  };
  RunLimits more_ram = same;
  *more_ram.ram_bytes *= 2;
  std::vector<WhatIf> found;
  if (host) {
    RunLimits more_vram = same;
    *more_vram.vram_bytes *= 2;
    found.push_back({"twice the VRAM", rate_on(profile, more_vram)});
    Profile faster = profile;
    for (LinkProfile& link : faster.machine.links) {
      for (const LinkCurve& one : kLinkCurves) link.*one.curve = (link.*one.curve).faster(2.0);
    }
    found.push_back({"a link twice as fast", rate_on(faster, same)});
  }
  found.push_back({host ? "twice the RAM" : "twice the memory", rate_on(profile, more_ram)});
  if (profile.machine.disk().bytes_per_second > 0) {
    Profile disk = profile;
    for (double DiskProfile::*rate : kDiskRates) disk.machine.disk().*rate *= 2;
    found.push_back({"a disk twice as fast", rate_on(disk, same)});
  }
  found.push_back({"twice the arithmetic", rate_on(with_faster_arithmetic(profile, 2.0), same)});
  if (foresight_.layouts().units(UnitKind::expert) > 0) {
    found.push_back({"4-bit experts", rate_with_small_experts()});
  }
  return found;
}

std::optional<BlockModel> Planning::block() const {
  const PlannedWork planned = work();
  const double positions = static_cast<double>(planned.prompt_tokens) +
                           0.5 * static_cast<double>(planned.generated_tokens);
  return block_model(prediction_inputs(), run().policy, positions);
}

}  // namespace klotski
