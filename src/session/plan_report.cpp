#include "session/plan_report.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/bytes.h"

namespace klotski {

namespace {

// The papers' models of the choice: Klotski's inequalities for the group, and the experts under the
// roofs of MoE-Lightning's model.
std::string paper_text(const Planning& planning) {
  constexpr int64_t kMostMicroBatches = 64;
  const Policy& policy = planning.run().policy;
  const PredictionInputs with = planning.prediction_inputs();
  const std::optional<BlockModel> block = planning.block();
  if (!block) return {};
  std::string text = fmt::format(
      "\nthe papers' models explain the plan; simulated runs decided it\n"
      "inequalities of a group of {} while decoding (Klotski, 4-7)\n",
      policy.group.micro_batches);
  for (const Inequality& one : inequalities(block->seconds, block->choices,
                                            policy.group.micro_batches, policy.group.micro_batch)) {
    text += fmt::format("  ({}) {:<15} computing {:8.2f} ms, transfers {:8.2f} ms: {}\n",
                        inequality_number(one.arrow), arrow_name(one.arrow), 1e3 * one.left_seconds,
                        1e3 * one.right_seconds, one.holds() ? "holds" : "a bubble");
  }
  const GroupChoice smallest =
      smallest_group(block->seconds, block->choices, kMostMicroBatches, policy.group.micro_batch);
  text += smallest.without_bubbles()
              ? fmt::format("  all hold from n = {} on{}\n", smallest.micro_batches,
                            smallest.micro_batches > policy.group.micro_batches
                                ? fmt::format("; n = {} is the fastest that memory and the work "
                                              "allow, by simulation of whole passes",
                                              policy.group.micro_batches)
                                : "")
              : fmt::format("  none of up to {} micro-batches hides all transfers\n",
                            kMostMicroBatches);
  const std::optional<NamedLevels> named = levels_of_weights(with);
  if (!named) return text;
  const LevelPair& levels = named->levels;
  const double rows = static_cast<double>(policy.group.sequences()) *
                      static_cast<double>(block->choices.experts_per_token) /
                      static_cast<double>(block->choices.popularity.size());
  const Operation expert = expert_operation(with, block->layer, rows);
  text += fmt::format(
      "experts of a full group (MoE-Lightning, 4-11): {:.1f} FLOP a byte; {} binds below {:.1f} "
      "(P2): {} binds\n",
      expert.lower_intensity(), named->link, second_turning_point(levels, expert),
      roof_name(attainable_above(levels, expert).roof));
  if (levels.lower.peak_flops_per_second > 0) {
    text += fmt::format(
        "  up to {:.1f} FLOP a byte (P1) the CPU is faster where they lie: here {}\n",
        first_turning_point(levels), better_below(levels, expert) ? "it is" : "it is not");
  }
  const Lane busiest = binding_lane(planning.prediction().totals);
  const Lane brings = planning.run().host ? Lane::kToDevice : Lane::kDiskRead;
  if (busiest != brings) {
    text += fmt::format(
        "  that is an expert which is brought for one use; in whole passes {} is the busier lane: "
        "experts that stay are not brought, and transfers go on while others compute\n",
        lane_name(busiest));
  }
  return text;
}

std::string prediction_text(const Prediction& predicted) {
  std::string text = fmt::format(
      "  predicted  {:.2f} tokens/s, prefill {:.1f}, decode {:.2f}; {:.1f} s in {} passes\n",
      predicted.tokens_per_second(), predicted.prefill_rate(), predicted.decode_rate(),
      predicted.seconds(), predicted.passes);
  for (const Lane lane : predicted.totals.used_lanes()) {
    text += fmt::format("  {:<10} busy {:.1f} %\n", lane_name(lane),
                        predicted.totals.percent(predicted.totals.lane(lane).busy));
  }
  return text + fmt::format("  binding    {}, over prefill and decode together\n",
                            lane_name(binding_lane(predicted.totals)));
}

std::string other_groups(const std::vector<Candidate>& candidates) {
  constexpr size_t kShown = 7;
  std::string text = "\nother choices, tokens/s:";
  for (size_t i = 1; i < std::min(candidates.size(), kShown); ++i) {
    const Choice& choice = candidates[i].choice;
    text +=
        fmt::format("{} {} x {} {}{} {:.2f}", i > 1 ? "," : "", choice.micro_batches,
                    choice.micro_batch, describe_strategy(choice.strategy, choice.cpu_attention),
                    choice.hot_experts > 0 ? fmt::format(" K={}", choice.hot_experts) : "",
                    candidates[i].prediction.tokens_per_second());
  }
  const double chosen = candidates.front().prediction.tokens_per_second();
  const bool beaten = std::any_of(candidates.begin(), candidates.end(), [&](const Candidate& one) {
    return one.prediction.tokens_per_second() > chosen;
  });
  if (beaten) text += "\n  of choices within 1 % of the fastest, the smallest usual one is taken";
  return text + "\n";
}

}  // namespace

std::string plan_text(const Planning& planning) {
  const PlannedWork work = planning.work();
  const Prediction& predicted = planning.prediction();
  std::string text = format_memory_plan(planning.run().memory);
  if (planning.run().host) text += format_memory_plan(*planning.run().host);
  text += fmt::format("\n{} sequences of {} + {} tokens\n", work.sequences, work.prompt_tokens,
                      work.generated_tokens);
  for (const Reason& reason : planning.reasons()) {
    text += fmt::format("  {:<12} {:<28} {}\n", reason.what, reason.chosen, reason.why);
  }
  text += prediction_text(predicted);
  for (const WhatIf& one : planning.what_ifs()) {
    text += fmt::format("  {:<22} {:.2f} tokens/s, {:+.0f} %\n", one.change, one.tokens_per_second,
                        100.0 * (one.tokens_per_second / predicted.tokens_per_second() - 1.0));
  }
  if (planning.candidates().size() > 1) text += other_groups(planning.candidates());
  text += paper_text(planning);
  const Probed& probed = planning.probed();
  const MachineProfile& machine = probed.profile.machine;
  text += fmt::format(
      "\nmachine: memory {:.1f} GB/s, disk {:.2f} GB/s ({})\n",
      machine.cpu().memory_bytes_per_second / 1e9, machine.disk().bytes_per_second / 1e9,
      probed.cached ? "measured before" : fmt::format("measured in {:.1f} s", probed.seconds));
  return text;
}

Json plan_json(const Planning& planning) {
  const Policy& policy = planning.run().policy;
  const Prediction& predicted = planning.prediction();
  const PlannedWork work = planning.work();
  const auto lines_of = [](const MemoryPlan& plan) {
    Json lines = Json::array();
    for (const MemoryLine& line : plan.lines) {
      lines.push_back({{"kind", line.kind}, {"bytes", line.bytes}, {"remark", line.remark}});
    }
    return lines;
  };
  Json host = nullptr;
  if (const std::optional<MemoryPlan>& plan = planning.run().host) {
    host = {{"limit_bytes", plan->limit_bytes}, {"memory", lines_of(*plan)}};
  }
  Json lanes = Json::object();
  for (const Lane lane : predicted.totals.used_lanes()) {
    const LaneTotals& totals = predicted.totals.lane(lane);
    lanes[std::string(lane_name(lane))] = {{"busy_seconds", in_seconds(totals.busy)},
                                           {"bytes", totals.bytes}};
  }
  Json relief = Json::array();
  for (const WhatIf& one : planning.what_ifs()) {
    relief.push_back({{"change", one.change}, {"tokens_per_second", one.tokens_per_second}});
  }
  Json reasons = Json::array();
  for (const Reason& one : planning.reasons()) {
    reasons.push_back({{"what", one.what}, {"chosen", one.chosen}, {"why", one.why}});
  }
  Json groups = Json::array();
  for (const Candidate& candidate : planning.candidates()) {
    groups.push_back({{"micro_batch", candidate.choice.micro_batch},
                      {"micro_batches", candidate.choice.micro_batches},
                      {"strategy", strategy_name(candidate.choice.strategy)},
                      {"cpu_attention", candidate.choice.cpu_attention},
                      {"hot_experts", candidate.choice.hot_experts},
                      {"tokens_per_second", candidate.prediction.tokens_per_second()}});
  }
  return {{"work",
           {{"sequences", work.sequences},
            {"prompt_tokens", work.prompt_tokens},
            {"generated_tokens", work.generated_tokens}}},
          {"limit_bytes", planning.run().memory.limit_bytes},
          {"memory", lines_of(planning.run().memory)},
          {"host_memory", host},
          {"policy",
           {{"strategy", strategy_name(policy.strategy)},
            {"cpu_attention", policy.division.attends_elsewhere()},
            {"micro_batch", policy.group.micro_batch},
            {"micro_batches", policy.group.micro_batches},
            {"hot_experts", policy.cache.hot_experts},
            {"micro_batch_rows", policy.group.micro_batch_rows},
            {"draft_tokens", policy.group.draft_tokens},
            {"at_once", planning.candidates().front().group.at_once}}},
          {"predicted",
           {{"tokens_per_second", predicted.tokens_per_second()},
            {"prefill_tokens_per_second", predicted.prefill_rate()},
            {"decode_tokens_per_second", predicted.decode_rate()},
            {"seconds", predicted.seconds()},
            {"passes", predicted.passes},
            {"lanes", lanes}}},
          {"binding", lane_name(binding_lane(predicted.totals))},
          {"reasons", reasons},
          {"relief", relief},
          {"groups", groups},
          {"machine",
           {{"memory_bytes_per_second",
             planning.probed().profile.machine.cpu().memory_bytes_per_second},
            {"disk_bytes_per_second", planning.probed().profile.machine.disk().bytes_per_second}}}};
}

}  // namespace klotski
