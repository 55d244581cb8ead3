#include <fmt/format.h>

#include <algorithm>

#include "base/bytes.h"
#include "base/error.h"
#include "base/json.h"
#include "base/numbers.h"
#include "cli/command.h"
#include "cli/pipeline_options.h"
#include "engine/choose_plan.h"
#include "planner/block_model.h"
#include "probe/probe.h"

namespace klotski {

namespace {

struct Options {
  std::string model;
  std::shared_ptr<PipelineFlags> pipeline = std::make_shared<PipelineFlags>();
  PlannedWork work{.sequences = 64, .prompt_tokens = 512, .generated_tokens = 32};
  bool json = false;
};

// "prompt=512,gen=32,sequences=64", any of them left out.
void read_workload(const std::string& text, PlannedWork& work) {
  constexpr int64_t kMost = 1 << 20;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    const std::string part = text.substr(at, end - at);
    const size_t equals = std::min(part.find('='), part.size());
    const std::string name = part.substr(0, equals);
    int64_t* field = name == "prompt"      ? &work.prompt_tokens
                     : name == "gen"       ? &work.generated_tokens
                     : name == "sequences" ? &work.sequences
                                           : nullptr;
    const std::optional<int64_t> value = parse_int(part.substr(std::min(equals + 1, part.size())));
    if (!field || !value || *value < 1 || *value > kMost) {
      fail(ErrorKind::usage,
           "--workload: expected prompt=N,gen=N,sequences=N with N from 1 to {}, found {}", kMost,
           in_quotes(part));
    }
    *field = *value;
    at = end + 1;
  }
}

// Which lane has the least time to spare.
Lane binding_lane(const TimelineTotals& totals) {
  size_t busiest = 0;
  for (size_t i = 1; i < kLaneCount; ++i) {
    if (totals.lanes[i].busy > totals.lanes[busiest].busy) busiest = i;
  }
  return static_cast<Lane>(busiest);
}

// A machine that computes so many times as fast.
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

// A disk that is not to be read faster.
void hold_back(MachineProfile& machine, uint64_t bytes_per_second) {
  const auto most = static_cast<double>(bytes_per_second);
  for (DiskRate& point : machine.disk)
    point.bytes_per_second = std::min(point.bytes_per_second, most);
  machine.disk_bytes_per_second_while_computing =
      std::min(machine.disk_bytes_per_second_while_computing, most);
}

// What a change of the machine would give.
struct Relief {
  std::string change;
  double tokens_per_second = 0;
};

class Planning {
 public:
  Planning(const Options& options, const OpenedModel& opened)
      : options_(options),
        opened_(opened),
        layouts_(opened.description, opened.checkpoint),
        shares_(opened.description),
        probed_(probe_model(opened, options.pipeline->limits.precision,
                            options.pipeline->limits.ram_bytes)) {
    if (const uint64_t most = options.pipeline->options.disk.bytes_per_second; most > 0) {
      hold_back(probed_.profile.machine, most);
    }
    chosen_ = choose(probed_.profile, options.pipeline->limits);
  }

  std::string text() const;
  Json json() const;

 private:
  ChosenPlan choose(const Profile& profile, const RunLimits& limits) const {
    return choose_plan(
        {opened_.description, layouts_, profile, shares_, options_.pipeline->options}, limits,
        options_.work);
  }
  const Prediction& prediction() const { return chosen_.candidates.front().prediction; }
  std::vector<Relief> reliefs() const;
  std::string paper_text() const;
  Machinery machinery() const {
    return {.model = opened_.description,
            .profile = probed_.profile,
            .facts = [this](const WeightUnit& unit) { return facts_of(layouts_, unit); },
            .shares = shares_};
  }

  const Options& options_;
  const OpenedModel& opened_;
  UnitLayouts layouts_;
  ExpertShares shares_;
  Probed probed_;
  ChosenPlan chosen_;
};

std::vector<Relief> Planning::reliefs() const {
  std::vector<Relief> found;
  const auto rate = [&](const Profile& profile, const RunLimits& limits) {
    return choose(profile, limits).candidates.front().prediction.tokens_per_second();
  };
  RunLimits more = options_.pipeline->limits;
  more.ram_bytes = 2 * chosen_.run.memory.limit_bytes;
  found.push_back({"twice the memory", rate(probed_.profile, more)});
  Profile disk = probed_.profile;
  for (DiskRate& point : disk.machine.disk) point.bytes_per_second *= 2;
  disk.machine.disk_bytes_per_second_while_computing *= 2;
  found.push_back({"a disk twice as fast", rate(disk, options_.pipeline->limits)});
  found.push_back({"twice the arithmetic",
                   rate(with_faster_arithmetic(probed_.profile, 2.0), options_.pipeline->limits)});
  return found;
}

// What the papers' models say of the choice: Klotski's inequalities for the group, and where the
// experts lie under the roofs of MoE-Lightning's model.
std::string Planning::paper_text() const {
  constexpr int64_t kMostMicroBatches = 64;
  const Policy& policy = chosen_.run.policy;
  const Machinery with = machinery();
  const double positions = static_cast<double>(options_.work.prompt_tokens) +
                           0.5 * static_cast<double>(options_.work.generated_tokens);
  const std::optional<BlockModel> block = block_model(with, policy, positions);
  if (!block) return {};
  std::string text = fmt::format("\ninequalities of a group of {} while decoding (Klotski, 4-7)\n",
                                 policy.micro_batches);
  for (const Inequality& one :
       inequalities(block->seconds, block->choices, policy.micro_batches, policy.micro_batch)) {
    text += fmt::format("  ({}) {:<15} computing {:8.2f} ms, transfers {:8.2f} ms: {}\n",
                        inequality_number(one.arrow), arrow_name(one.arrow), 1e3 * one.left_seconds,
                        1e3 * one.right_seconds, one.holds() ? "holds" : "a bubble");
  }
  const GroupChoice smallest =
      smallest_group(block->seconds, block->choices, kMostMicroBatches, policy.micro_batch);
  text += smallest.without_bubbles()
              ? fmt::format("  all hold from n = {} on\n", smallest.micro_batches)
              : fmt::format("  none of up to {} micro-batches hides all transfers\n",
                            kMostMicroBatches);
  const LevelPair levels = memory_over_disk(with);
  const double rows = static_cast<double>(policy.group_sequences()) *
                      static_cast<double>(block->choices.experts_per_token) /
                      static_cast<double>(block->choices.popularity.size());
  const Operation expert = expert_operation(with, block->layer, rows);
  text += fmt::format(
      "experts of a full group: {:.1f} FLOP a byte; the disk binds below {:.1f} (P2): {} binds\n",
      expert.lower_intensity(), second_turning_point(levels, expert),
      roof_name(attainable_above(levels, expert).roof));
  return text;
}

std::string Planning::text() const {
  const Policy& policy = chosen_.run.policy;
  const PlannedWork& work = options_.work;
  const Prediction& predicted = prediction();
  std::string text = format_memory_plan(chosen_.run.memory);
  text += fmt::format("\n{} sequences of {} + {} tokens\n", work.sequences, work.prompt_tokens,
                      work.generated_tokens);
  text += fmt::format("  group      {} micro-batches of {} sequences, {} at once, strategy {}\n",
                      policy.micro_batches, policy.micro_batch,
                      std::min(chosen_.candidates.front().group.at_once, work.sequences),
                      strategy_name(policy.strategy));
  text += fmt::format(
      "  predicted  {:.2f} tokens/s, prefill {:.1f}, decode {:.2f}; {:.1f} s in {} passes\n",
      predicted.tokens_per_second(), predicted.prefill_rate(), predicted.decode_rate(),
      predicted.seconds(), predicted.passes);
  for (size_t i = 0; i < kLaneCount; ++i) {
    const LaneTotals& lane = predicted.totals.lanes[i];
    if (lane.spans == 0) continue;
    text += fmt::format("  {:<10} busy {:.1f} %\n", lane_name(static_cast<Lane>(i)),
                        predicted.totals.percent(lane.busy));
  }
  text += fmt::format("  binding    {}\n", lane_name(binding_lane(predicted.totals)));
  for (const Relief& relief : reliefs()) {
    text += fmt::format("  {:<22} {:.2f} tokens/s, {:+.0f} %\n", relief.change,
                        relief.tokens_per_second,
                        100.0 * (relief.tokens_per_second / predicted.tokens_per_second() - 1.0));
  }
  text += fmt::format("\nother groups, tokens/s:");
  for (size_t i = 1; i < std::min<size_t>(chosen_.candidates.size(), 7); ++i) {
    const Candidate& other = chosen_.candidates[i];
    text += fmt::format("{} {} x {} {:.2f}", i > 1 ? "," : "", other.size.micro_batches,
                        other.size.micro_batch, other.prediction.tokens_per_second());
  }
  text += "\n" + paper_text();
  const MachineProfile& machine = probed_.profile.machine;
  text += fmt::format(
      "\nmachine: memory {:.1f} GB/s, disk {:.2f} GB/s ({})\n",
      machine.memory_bytes_per_second / 1e9, machine.disk_bytes_per_second() / 1e9,
      probed_.cached ? "measured before" : fmt::format("measured in {:.1f} s", probed_.seconds));
  return text;
}

Json Planning::json() const {
  const Policy& policy = chosen_.run.policy;
  const Prediction& predicted = prediction();
  Json memory = Json::array();
  for (const MemoryLine& line : chosen_.run.memory.lines) {
    memory.push_back({{"kind", line.kind}, {"bytes", line.bytes}, {"remark", line.remark}});
  }
  Json lanes = Json::object();
  for (size_t i = 0; i < kLaneCount; ++i) {
    const LaneTotals& lane = predicted.totals.lanes[i];
    if (lane.spans == 0) continue;
    lanes[std::string(lane_name(static_cast<Lane>(i)))] = {{"busy_seconds", in_seconds(lane.busy)},
                                                           {"bytes", lane.bytes}};
  }
  Json relief = Json::array();
  for (const Relief& one : reliefs()) {
    relief.push_back({{"change", one.change}, {"tokens_per_second", one.tokens_per_second}});
  }
  Json groups = Json::array();
  for (const Candidate& candidate : chosen_.candidates) {
    groups.push_back({{"micro_batch", candidate.size.micro_batch},
                      {"micro_batches", candidate.size.micro_batches},
                      {"tokens_per_second", candidate.prediction.tokens_per_second()}});
  }
  return {{"work",
           {{"sequences", options_.work.sequences},
            {"prompt_tokens", options_.work.prompt_tokens},
            {"generated_tokens", options_.work.generated_tokens}}},
          {"limit_bytes", chosen_.run.memory.limit_bytes},
          {"memory", memory},
          {"policy",
           {{"strategy", strategy_name(policy.strategy)},
            {"micro_batch", policy.micro_batch},
            {"micro_batches", policy.micro_batches},
            {"micro_batch_rows", policy.micro_batch_rows},
            {"at_once", chosen_.candidates.front().group.at_once}}},
          {"predicted",
           {{"tokens_per_second", predicted.tokens_per_second()},
            {"prefill_tokens_per_second", predicted.prefill_rate()},
            {"decode_tokens_per_second", predicted.decode_rate()},
            {"seconds", predicted.seconds()},
            {"passes", predicted.passes},
            {"lanes", lanes}}},
          {"binding", lane_name(binding_lane(predicted.totals))},
          {"relief", relief},
          {"groups", groups},
          {"machine",
           {{"memory_bytes_per_second", probed_.profile.machine.memory_bytes_per_second},
            {"disk_bytes_per_second", probed_.profile.machine.disk_bytes_per_second()}}}};
}

void check(const Options& options, const ModelDescription& model) {
  if (!options.pipeline->options.spill_folder.empty()) {
    fail(ErrorKind::usage,
         "--kv-spill: expected keys and values in memory; what is spilled is not simulated yet");
  }
  const int64_t tokens = options.work.prompt_tokens + options.work.generated_tokens;
  if (tokens > model.max_positions) {
    fail(ErrorKind::usage,
         "--workload: {} tokens of prompt and continuation, the model has room for {}", tokens,
         model.max_positions);
  }
}

int plan_command(const Options& options) {
  const OpenedModel opened = open_model(options.model);
  check(options, opened.description);
  const Planning planning(options, opened);
  write_out(options.json ? planning.json().dump(2) + "\n" : planning.text());
  return 0;
}

}  // namespace

void add_plan_command(CLI::App& app, Action& action) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "plan", "Measure the machine, choose how to run a workload and predict what it takes");
  command->add_option("MODEL", options->model, "Folder, bundled name or repository id")->required();
  command
      ->add_option_function<std::string>(
          "--workload", [options](const std::string& text) { read_workload(text, options->work); },
          "What is to be generated (default prompt=512,gen=32,sequences=64)")
      ->type_name("prompt=N,gen=N,sequences=N");
  command->add_flag("--json", options->json, "Print JSON");
  add_pipeline_flags(*command, options->pipeline);
  command->callback([options, &action] { action = [options] { return plan_command(*options); }; });
}

}  // namespace klotski
