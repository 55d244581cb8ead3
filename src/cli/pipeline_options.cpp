#include "cli/pipeline_options.h"

#include <fmt/format.h>

#include <chrono>

#include "base/bytes.h"
#include "base/error.h"
#include "base/process_memory.h"
#include "cli/sample_text.h"
#include "engine/text_pass.h"
#include "timeline/chrome_trace.h"
#include "timeline/svg.h"

namespace klotski {

namespace {

constexpr uint64_t kMaxWarmUpBytes = 64 * kMiB;
constexpr int64_t kWarmUpPromptTokens = 512;
constexpr int64_t kMostSpans = 200'000;  // the latest ones

void add_lossy_flags(CLI::App& command, const std::shared_ptr<PipelineFlags>& flags) {
  add_integer(command, "--attention-window", {1, 1 << 30},
              "Lossy: attend to the last so many tokens only, and to the first --attention-sinks",
              [flags](int64_t value) { flags->limits.attention_window = value; });
  add_integer(command, "--attention-sinks", {0, 1 << 30},
              "Lossy: with --attention-window, first tokens that stay visible (default 0)",
              [flags](int64_t value) { flags->limits.attention_sinks = value; });
}

void add_experiment_flags(CLI::App& command, const std::shared_ptr<PipelineFlags>& flags) {
  add_integer(command, "--expert-slots", {1, 1 << 30},
              "At most so many expert buffers in memory (for experiments)",
              [flags](int64_t value) { flags->limits.expert_slots = value; });
  add_integer(command, "--micro-batch", {1, 65536}, "Sequences computed by one kernel call",
              [flags](int64_t value) { flags->limits.micro_batch = value; });
  add_integer(command, "--n-batches", {1, 4096}, "Micro-batches that share one load of the weights",
              [flags](int64_t value) { flags->limits.micro_batches = value; });
  add_integer(command, "--path-length", {1, kMaxPathLength},
              "Layers whose choices foretell the hot experts of the next (default 1)",
              [flags](int64_t value) { flags->limits.path_length = static_cast<int>(value); });
  add_integer(
      command, "--hot-experts", {1, 65536},
      "Experts prefetched a layer (default: as many as a token chooses, or more by prediction)",
      [flags](int64_t value) { flags->limits.hot_experts = value; });
  command
      .add_option_function<std::string>(
          "--attention",
          [flags](const std::string& where) {
            if (where != "auto") flags->limits.cpu_attention = where == "cpu";
          },
          "With a GPU, what computes the attention of decoding rows: gpu, cpu (keys and values "
          "then lie in RAM), or auto (default: the faster by prediction where one is made, "
          "else gpu)")
      ->check(CLI::IsMember({"auto", "cpu", "gpu"}));
  command
      .add_option("--eviction", flags->limits.eviction,
                  "Which expert leaves memory: furthest (from its next use; default, but with few "
                  "sequences beside a GPU lfu), lru, lfu")
      ->check(CLI::IsMember({"furthest", "lru", "lfu"}));
  command
      .add_option("--kernels", flags->kernels,
                  "Implementation of the arithmetic: cpu (default) or reference")
      ->check(CLI::IsMember({"cpu", "reference"}));
  add_size(command, "--disk-speed", "Read no faster than so many bytes a second (for experiments)",
           [flags](uint64_t value) { flags->options.disk.bytes_per_second = value; });
  add_integer(command, "--stress", {0, INT64_MAX},
              "Delay and reorder whatever may be reordered, by this seed (for tests)",
              [flags](int64_t value) {
                flags->options.executor.stress_seed = static_cast<uint64_t>(value);
              });
}

}  // namespace

void add_pipeline_flags(CLI::App& command, const std::shared_ptr<PipelineFlags>& flags) {
  add_size(command, "--ram",
           "Most memory the process may use, e.g. 3GiB (default: what is free, less a sixteenth)",
           [flags](uint64_t value) { flags->limits.ram_bytes = value; });
  command
      .add_option(
          "--device", flags->device,
          "What computes: auto (default: a GPU where there is one), cpu, gpu, or the number "
          "of a GPU")
      ->type_name("NAME");
  add_size(command, "--vram",
           "Most memory of the GPU the process may use (default: what is free, less a sixteenth)",
           [flags](uint64_t value) { flags->limits.vram_bytes = value; });
  add_size(command, "--kv-limit", "Most of it for keys and values; of VRAM where a GPU computes",
           [flags](uint64_t value) { flags->limits.kv_bytes = value; });
  command
      .add_option_function<std::string>(
          "--kv-spill",
          [flags](const std::string& folder) { flags->options.spill_folder = folder; },
          "Keep keys and values beyond that in a temporary file in this folder")
      ->type_name("FOLDER");
  command
      .add_option_function<std::string>(
          "--strategy",
          [flags](const std::string& name) {
            flags->limits.strategy = strategy_from_name(name);
            if (!flags->limits.strategy && name != "auto") {
              fail(ErrorKind::usage,
                   "--strategy: expected auto, simple, multi-batch, hot-prefetch, klotski, "
                   "cgopipe or hybrid, found {}",
                   in_quotes(name));
            }
          },
          "auto (default: batch and bench, and run on a GPU, take the fastest by prediction, "
          "others "
          "klotski), simple, multi-batch, hot-prefetch, klotski or, with a GPU and the CPU beside "
          "it, cgopipe (the CPU attends) or hybrid (it computes experts)")
      ->type_name("NAME");
  command
      .add_option_function<std::string>(
          "--precision",
          [flags](const std::string& name) {
            flags->limits.precision = name == "f32" ? Precision::f32 : Precision::bf16;
          },
          "Inputs of products with bf16 weights, and keys and values: bf16 (default) or f32; sums, "
          "router and what is passed from layer to layer are float32 either way")
      ->check(CLI::IsMember({"f32", "bf16"}));
  add_output_file(command, "--trace", "FILE.json", "Write what every lane did, for Perfetto",
                  flags->trace_file);
  add_output_file(command, "--timeline", "FILE.svg", "Draw one layer to scale",
                  flags->timeline_file);
  command.add_option("--correlation", flags->correlation_file, "Read the expert correlation table")
      ->type_name("FILE");
  add_output_file(command, "--save-correlation", "FILE",
                  "Write the expert correlation table when done", flags->save_correlation_file);
  command
      .add_option("--warm-up", flags->warm_up,
                  "Learn the correlation table first from this text (\"sample\": a built-in one)")
      ->type_name("FILE");
  command.add_flag("--plan", flags->show_plan, "Print the memory plan before anything is read");
  add_lossy_flags(command, flags);
  add_experiment_flags(command, flags);
}

PipelineOptions options_of(const PipelineFlags& flags) {
  if (flags.limits.attention_sinks > 0 && flags.limits.attention_window == 0) {
    fail(ErrorKind::usage, "--attention-sinks: expected --attention-window with it");
  }
  if (flags.limits.strategy && properties_of(*flags.limits.strategy).needs_cpu_attention &&
      flags.limits.cpu_attention == false) {
    fail(ErrorKind::usage, "--strategy cgopipe attends on the CPU, --attention asks for the GPU");
  }
  PipelineOptions options = flags.options;
  if (!flags.trace_file.empty() || !flags.timeline_file.empty()) options.keep_spans = kMostSpans;
  return options;
}

std::optional<CorrelationTable> correlation_table(const OpenedModel& opened,
                                                  const PipelineFlags& flags) {
  if (flags.correlation_file.empty()) return {};
  CorrelationTable table =
      CorrelationTable::load(flags.correlation_file, routing_shape(opened.description));
  if (table.path_length() != flags.limits.path_length) {
    fail(ErrorKind::usage, "--correlation: {} has paths of length {}, --path-length is {}",
         in_quotes(flags.correlation_file, 300), table.path_length(), flags.limits.path_length);
  }
  return table;
}

MaybeForesight foresight_for(const OpenedModel& opened, const PipelineFlags& flags) {
  if (flags.kernels == "reference") return {};
  try {
    return {.foresight = std::make_unique<Foresight>(opened, target_of(flags), flags.limits,
                                                     options_of(flags)),
            .why_none = {}};
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::does_not_fit) throw;
    return {.foresight = nullptr,
            .why_none = fmt::format("no prediction: {}\n", one_line(error.what()))};
  }
}

namespace {

// A device's weights are in place before it begins: what passes leave there, they find there.
void preload(PreparedModel& model) {
  StatusLine status("loading weights", "bytes");
  model.pipeline().preload([&](uint64_t done, uint64_t total) { status.update(done, total); });
}

}  // namespace

PipelineFlags on_cpu(PipelineFlags flags) {
  flags.device = "cpu";
  flags.limits.cpu_attention.reset();
  if (flags.limits.strategy && properties_of(*flags.limits.strategy).needs_device)
    flags.limits.strategy.reset();
  flags.target = std::make_shared<std::shared_ptr<OpenedTarget>>();
  return flags;
}

Target& target_of(const PipelineFlags& flags) {
  if (!*flags.target) *flags.target = open_target(flags.device, flags.kernels);
  return (*flags.target)->target;
}

namespace {

void refuse_without_device(const PipelineFlags& flags, const Target& target) {
  if (target.device) return;
  const std::optional<Strategy>& strategy = flags.limits.strategy;
  if (strategy && properties_of(*strategy).needs_device) {
    fail(ErrorKind::usage, "--strategy {} divides work between a GPU and the CPU: expected a GPU",
         strategy_name(*strategy));
  }
  if (flags.limits.cpu_attention == true) {
    fail(ErrorKind::usage,
         "--attention cpu: expected a GPU beside the CPU, which does all without");
  }
}

}  // namespace

std::unique_ptr<PreparedModel> prepare_model(const OpenedModel& opened, const PipelineFlags& flags,
                                             const Workload& workload, Foresight* foresight) {
  PipelineOptions options = options_of(flags);
  options.source = opened.source;
  Target& target = target_of(flags);
  refuse_without_device(flags, target);
  const std::optional<CorrelationTable> table = correlation_table(opened, flags);
  // Who computes what is decided by what each takes.
  std::unique_ptr<Foresight> own;
  if (!foresight && target.device && flags.limits.strategy &&
      properties_of(*flags.limits.strategy).divides_experts) {
    own = foresight_for(opened, flags).foresight;
    foresight = own.get();
  }
  if (foresight && table) foresight->learn(*table);
  RunPlan plan =
      foresight ? choose_plan(foresight->ground(), flags.limits, workload).run
                : plan_run(opened.description, UnitLayouts(opened.description, opened.checkpoint),
                           target, flags.limits, workload, options);
  auto model = std::make_unique<PreparedModel>(opened.description, opened.checkpoint, target,
                                               std::move(plan), options);
  if (table) model->pipeline().correlations() = *table;
  if (flags.show_plan || err_is_terminal()) {
    const Policy& policy = model->policy();
    write_err(format_memory_plan(model->plan().memory));
    if (model->plan().below) write_err(format_memory_plan(*model->plan().below));
    write_err(fmt::format("strategy {}, groups of {} x {} sequences\n",
                          describe_strategy(policy.strategy, policy.division.cpu_attention),
                          policy.group.micro_batches, policy.group.micro_batch));
  }
  if (target.device) preload(*model);
  return model;
}

void warm_up(const PipelineFlags& flags, PreparedModel& model, const Tokenizer& tokenizer) {
  if (flags.warm_up.empty()) return;
  const std::string text =
      text_or_sample(flags.warm_up == "sample" ? "" : flags.warm_up, "--warm-up", kMaxWarmUpBytes);
  // Sequences as long as the plan has room for: the paper's pre-run takes 8 of 512 tokens.
  const std::vector<TokenId> tokens = tokenizer.encode(text, {});
  const PagedKvCache& cache = model.pipeline().cache();
  const int64_t room =
      std::max(cache.capacity_pages(), cache.spill_capacity_pages()) * PagedKvCache::kPageTokens;
  const int64_t length =
      std::min({kWarmUpPromptTokens, room, model.pipeline().description().max_positions});
  std::vector<std::vector<TokenId>> texts = cut_into_sequences(tokens, length);
  texts.resize(std::min(texts.size(), kWarmUpTexts));
  pass_texts(model.pipeline(), texts);
}

std::vector<std::string> losses(const PipelineFlags& flags) {
  if (flags.limits.attention_window == 0) return {};
  return {fmt::format("attention to the first {} and the last {} tokens only",
                      flags.limits.attention_sinks, flags.limits.attention_window)};
}

void write_pipeline_files(const PipelineFlags& flags, PreparedModel& model) {
  const std::vector<TimelineSpan> spans = model.pipeline().timeline().spans();
  if (!flags.trace_file.empty()) {
    write_argument_file(flags.trace_file, "--trace",
                        [&](std::ostream& out) { write_chrome_trace(out, spans); });
  }
  if (!flags.timeline_file.empty()) {
    const TimelineBlock block = longest_typical_block(spans).value_or(TimelineBlock{});
    const std::string title = fmt::format(
        "{}, layer {}",
        describe_strategy(model.policy().strategy, model.policy().division.cpu_attention),
        block.layer);
    write_argument_file(flags.timeline_file, "--timeline",
                        [&](std::ostream& out) { write_timeline_svg(out, spans, block, title); });
  }
  if (!flags.save_correlation_file.empty()) {
    model.pipeline().correlations().save(flags.save_correlation_file);
  }
}

std::string format_summary(PreparedModel& model) {
  const PipelineReport report = model.pipeline().report();
  const TimelineTotals& totals = report.totals;
  std::string text = fmt::format(
      "{} passes in {:.2f} s, strategy {}\n", report.passes, in_seconds(totals.elapsed),
      describe_strategy(model.policy().strategy, model.policy().division.cpu_attention));
  for (const Lane used : totals.used_lanes()) {
    const LaneTotals& lane = totals.lane(used);
    text += fmt::format("  {:<10} busy {:5.1f} %", lane_name(used), totals.percent(lane.busy));
    if (lane.bytes > 0) {
      text += fmt::format("  {:>10}  {:.2f} GB/s while busy", format_bytes(lane.bytes),
                          static_cast<double>(lane.bytes) / 1e9 / in_seconds(lane.busy));
    }
    text += "\n";
  }
  text += fmt::format("  bubbles    {:.1f} % between layers, {:.1f} % between experts\n",
                      totals.percent(totals.inter_layer), totals.percent(totals.intra_layer));
  text += fmt::format("  experts    {} of {} requests found in memory ({:.1f} %), {} evicted\n",
                      report.experts.hits, report.experts.requests(),
                      100.0 * report.experts.hit_share(), report.experts.evictions);
  text += fmt::format("  prefetched {} useful, {} late, {} wasted\n",
                      format_bytes(report.prefetch.useful), format_bytes(report.prefetch.late),
                      format_bytes(report.prefetch.wasted));
  const MemoryPlan& program = model.plan().below ? *model.plan().below : model.plan().memory;
  text += fmt::format("  memory     peak {}, planned {}, allowed {}\n",
                      format_bytes(peak_resident_bytes()), format_bytes(program.total_bytes()),
                      format_bytes(program.limit_bytes));
  if (model.below()) {
    text += fmt::format("             {} of {} of weights pinned\n",
                        format_bytes(model.below()->weights.pinned_bytes()),
                        format_bytes(model.below()->weights.bytes()));
    text += fmt::format("  VRAM       planned {}, allowed {}\n",
                        format_bytes(model.plan().memory.total_bytes()),
                        format_bytes(model.plan().memory.limit_bytes));
  }
  for (const TierUse& use : model.compute_tier().uses()) {
    text += fmt::format("    {:<18} {:>10}\n", use.kind, format_bytes(use.peak));
  }
  if (const int64_t pages = model.pipeline().cache().spill_capacity_pages(); pages > 0) {
    text += fmt::format("    {:<18} {:>10}  {}\n", "spilled KV",
                        format_bytes(model.policy().layout.kv_spill_bytes),
                        model.below() ? "in RAM" : "on disk");
  }
  return text;
}

}  // namespace klotski
