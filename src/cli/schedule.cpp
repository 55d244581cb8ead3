#include <fmt/format.h>

#include <algorithm>
#include <random>

#include "base/error.h"
#include "cli/command.h"
#include "cli/model_flags.h"
#include "cli/session_output.h"
#include "experts/popularity_predictor.h"
#include "model/counts.h"
#include "model/tensors.h"
#include "planner/expert_shares.h"
#include "schedule/simulate.h"

namespace klotski {

namespace {

struct ScheduleOptions {
  ModelFlags model;
  SessionFlags flags;
  bool print = false;
  uint64_t disk_bytes_per_second = 2'000'000'000;
  double compute_flops = 100e9;
  int64_t rows = 1;  // rows of a sequence: 1 is decode
  int64_t seed = 0;
  int64_t passes = 3;
};

// Weights of the projections of a layer's attention.
double projection_weights(const ModelDescription& model, LayerId layer) {
  double weights = 0.0;
  for (const TensorSpec& spec : attention_tensors(model, layer)) {
    if (spec.shape.size() != 2) continue;
    weights += static_cast<double>(spec.shape[0]) * static_cast<double>(spec.shape[1]);
  }
  return weights;
}

// Floating-point operations of a task: two a weight and row. Rows of an expert are the number
// expected of even routing.
double operations(const Task& task, const ModelDescription& model, int64_t batch_rows,
                  int64_t group_rows) {
  const Layer& layer = model.layer(task.layer);
  const auto rows = static_cast<double>(task.micro_batch == kWholeGroup ? group_rows : batch_rows);
  const auto hidden = static_cast<double>(model.hidden);
  const auto width = static_cast<double>(layer.feed_forward.width);
  const auto experts = static_cast<double>(layer.feed_forward.experts);
  switch (task.work) {
    case Work::attention:
      return 2.0 * rows * projection_weights(model, task.layer);
    case Work::gate:
      return 2.0 * rows * hidden * experts;
    case Work::expert:
      return 6.0 * rows * hidden * width * static_cast<double>(layer.feed_forward.router.top_k) /
             experts;
    default:
      return 0.0;
  }
}

// Random choices, equal for every strategy: each of a micro-batch's tokens takes top_k.
std::vector<ExpertId> random_choice(const ScheduleOptions& options, const ModelDescription& model,
                                    LayerId layer, int64_t tokens, int32_t micro_batch) {
  const FeedForward& part = model.layer(layer).feed_forward;
  if (!part.routed) return {ExpertId(0)};
  std::mt19937_64 random(
      static_cast<uint64_t>(options.seed * 1'000'003 + layer.value * 1009 + micro_batch));
  std::vector<ExpertId> chosen;
  for (int64_t i = 0; i < tokens * part.router.top_k; ++i) {
    chosen.push_back(
        ExpertId(static_cast<int64_t>(random() % static_cast<uint64_t>(part.experts))));
  }
  std::sort(chosen.begin(), chosen.end());
  chosen.erase(std::unique(chosen.begin(), chosen.end()), chosen.end());
  return chosen;
}

// Hands tasks to the simulation, and to standard output where asked.
class PrintingSink : public TaskSink {
 public:
  PrintingSink(Simulation& simulation, bool print) : simulation_(simulation), print_(print) {}
  void submit(Fragment fragment) override {
    if (print_) write_out(format_fragment(fragment));
    simulation_.submit(std::move(fragment));
  }
  std::vector<ExpertId> chosen(LayerId layer, int32_t micro_batch) override {
    return simulation_.chosen(layer, micro_batch);
  }
  bool withdraw(const WeightUnit& unit, TierId tier) override {
    return simulation_.withdraw(unit, tier);
  }

 private:
  Simulation& simulation_;
  bool print_;
};

// A simulation takes random routing, the rates of its own flags and no file of a predictor.
void check(const ScheduleOptions& options) {
  refuse_run_flags(options.flags, "a schedule is simulated");
  const SessionOptions& session = options.flags.options;
  const auto refuse_if = [](bool given, std::string_view flag, std::string_view instead) {
    if (given) fail(ErrorKind::usage, "{}: expected no such flag; {}", flag, instead);
  };
  refuse_if(session.pipeline.disk.bytes_per_second > 0, "--disk-speed", "see --assume-disk");
  refuse_if(!session.predictor.empty(), "--predictor", "the simulated routing is random");
  refuse_if(!session.predictor_file.empty(), "--predictor-file", "the simulated routing is random");
  refuse_if(!session.activation_file.empty(), "--eamc", "the simulated routing is random");
}

int schedule_command(const ScheduleOptions& options) {
  check(options);
  Session session(open_model(options.model), options.flags.session_options(),
                  events_on_stderr(options.flags));
  const ModelDescription& model = session.description();
  const RunLimits& limits = session.options().limits;
  const int64_t sequences = limits.micro_batch.value_or(4) * limits.micro_batches.value_or(4);
  const RunPlan& plan = session.plan({.sequences = sequences,
                                      .tokens_per_sequence = options.rows + 1,
                                      .prompt_tokens = options.rows});
  const Policy& policy = plan.policy;
  const bool decodes = options.rows == 1;
  const int64_t batches = decodes ? policy.decode_batches() : policy.group.micro_batches;
  const int64_t batch_rows =
      decodes ? policy.decode_sequences() : policy.group.micro_batch * options.rows;
  const int64_t group_rows = batch_rows * batches;
  const UnitLayouts layouts(model, session.model().checkpoint);
  Timeline timeline(0);
  Simulation simulation(
      [&](const Task& task) {
        const double seconds =
            task.lane == Lane::kCompute
                ? operations(task, model, batch_rows, group_rows) / options.compute_flops
                : static_cast<double>(task.bytes) /
                      static_cast<double>(options.disk_bytes_per_second);
        return std::chrono::nanoseconds(static_cast<int64_t>(seconds * 1e9));
      },
      [&](LayerId layer, int32_t micro_batch) {
        return random_choice(options, model, layer, batch_rows, micro_batch);
      },
      timeline);
  PrintingSink sink(simulation, options.print);
  const PopularityPredictor predictor(model, ExpertShares(model).all());  // all experts alike
  const double expert_rows = static_cast<double>(group_rows * most_choices(model)) /
                             static_cast<double>(most_experts(model));
  const ContextSources sources{
      .model = model,
      .rule = policy.cache,
      .predictor = predictor,
      .facts = [&](const WeightUnit& unit) { return facts_of(layouts, unit); },
      .rows = [&](ExpertId) { return expert_rows; }};
  Residency residency(model, policy);
  FragmentBuilder build(policy, residency,
                        sources.context(std::vector<MicroBatchShape>(static_cast<size_t>(batches),
                                                                     {.rows = batch_rows})));
  const auto schedule = make_schedule(policy.strategy);
  TimelineTotals before;
  for (int64_t played = 0; played < options.passes; ++played) {
    before = timeline.totals();
    run_pass(*schedule, build, sink);
    simulation.play_out();
  }
  TimelineTotals pass = timeline.totals();
  pass -= before;
  write_out(fmt::format(
      "{}: pass {} of {} x {} sequences takes {:.3f} s (compute busy {:.3f} s, disk {:.3f} s, "
      "bubbles {:.3f} s between layers and {:.3f} s between experts)\n",
      strategy_name(policy.strategy), options.passes, batches, batch_rows / options.rows,
      in_seconds(pass.elapsed), in_seconds(pass.lane(Lane::kCompute).busy),
      in_seconds(pass.lane(Lane::kDiskRead).busy), in_seconds(pass.inter_layer),
      in_seconds(pass.intra_layer)));
  return 0;
}

}  // namespace

void add_schedule_command(CLI::App& app, Action& action) {
  auto options = std::make_shared<ScheduleOptions>();
  CLI::App* command = app.add_subcommand(
      "schedule",
      "Simulate passes of a strategy without loading weights; --print shows their tasks");
  add_model_flags(*command, options->model);
  command->add_flag("--print", options->print,
                    "Print every task with the buffers it reads and writes");
  add_size(*command, "--assume-disk",
           "Assume that the disk reads this many bytes a second (default 2GB)",
           [options](uint64_t value) {
             if (value == 0) fail(ErrorKind::usage, "--assume-disk: expected more than 0");
             options->disk_bytes_per_second = value;
           });
  add_number(*command, "--assume-gflops", {0.001, 1e9},
             "Assume X billion floating-point operations a second (default 100)",
             [options](double value) { options->compute_flops = value * 1e9; });
  add_integer(*command, "--rows", {1, 1 << 20},
              "Tokens of each sequence in a pass: 1 (default) is decoding, more is a prompt",
              [options](int64_t value) { options->rows = value; });
  add_integer(*command, "--seed", {0, 1 << 30}, "Seed of the random routing (default 0)",
              [options](int64_t value) { options->seed = value; });
  add_integer(*command, "--passes", {1, 1000},
              "Simulate N passes and report the last one (default 3)",
              [options](int64_t value) { options->passes = value; });
  add_session_flags(*command, options->flags);
  command->callback(
      [options, &action] { action = [options] { return schedule_command(*options); }; });
}

}  // namespace klotski
