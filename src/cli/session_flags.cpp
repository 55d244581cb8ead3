#include "cli/session_flags.h"

#include <chrono>

#include "base/error.h"

namespace klotski {

namespace {

constexpr int64_t kMostSpans = 200'000;  // the latest ones are kept

// As CLI::IsMember() takes them.
std::vector<std::string> names_of(std::span<const std::string_view> names) {
  return {names.begin(), names.end()};
}

void add_strategy_flags(CLI::App& command, SessionFlags& flags) {
  RunLimits& limits = flags.options.limits;
  command
      .add_option_function<std::string>(
          "--strategy",
          [&limits](const std::string& name) {
            limits.strategy = strategy_choice("--strategy", name);
          },
          "Order in which weights are loaded and used: auto (default: the fastest by prediction in "
          "batch and bench, and in run on a GPU; klotski in other commands), simple, multi-batch, "
          "hot-prefetch, klotski, activation-aware or predictive (both bring experts of several "
          "layers by their --predictor while that proves to pay) or, with a GPU, cgopipe (the CPU "
          "computes attention) or hybrid (the CPU computes some experts)")
      ->type_name("NAME");
  command
      .add_option_function<std::string>(
          "--attention",
          [&limits](const std::string& where) {
            limits.cpu_attention = cpu_attention_choice("--attention", where);
          },
          "With a GPU, processor that computes the attention of decoding sequences: gpu, cpu (keys "
          "and values then lie in RAM) or auto (default: the faster by prediction where one is "
          "made, else gpu)")
      ->type_name("NAME");
}

void add_output_flags(CLI::App& command, SessionFlags& flags) {
  command
      .add_option_function<std::string>(
          "--precision",
          [&limits = flags.options.limits](const std::string& name) {
            limits.precision = precision_choice("--precision", name);
          },
          "Type of keys and values, and of the inputs of products with bf16 or quantised weights: "
          "bf16 (default; quantised weights are rounded as well) or f32. Sums, routers and hidden "
          "states between layers are float32 either way")
      ->type_name("NAME");
  add_output_file(command, "--trace", "FILE.json",
                  "Write what every lane did when, as a trace for Perfetto", flags.trace_file);
  add_output_file(command, "--timeline", "FILE.svg",
                  "Draw the lanes of one layer, with times to scale", flags.timeline_file);
  command.add_flag("--plan", flags.show_plan, "Print the memory plan before any weight is read");
  command.add_flag("--verbose", flags.verbose,
                   "Print the memory plan, and at the end how lanes, experts and memory were used");
}

void add_prediction_flags(CLI::App& command, SessionFlags& flags) {
  command
      .add_option("--correlation", flags.options.correlation_file,
                  "Begin with the expert correlation table in this file")
      ->type_name("FILE");
  add_output_file(command, "--save-correlation", "FILE",
                  "Write the expert correlation table to this file when done",
                  flags.save_correlation_file);
  command
      .add_option("--warm-up", flags.warm_up,
                  "Before the work, learn the expert correlation table from the text in this file; "
                  "\"sample\" is a built-in text")
      ->type_name("FILE");
  command
      .add_option("--predictor", flags.options.predictor,
                  "How the experts of coming layers are predicted: none, correlation (by the layer "
                  "before), token (by the token), activation-aware (by similar past requests), "
                  "path (by the network of --predictor-file); default: the strategy's own, "
                  "correlation where it has none")
      ->check(CLI::IsMember(names_of(predictor_names())));
  command
      .add_option("--predictor-file", flags.options.predictor_file,
                  "Network of --predictor path, written by klotski train-predictor")
      ->type_name("FILE");
  add_output_file(command, "--eamc", "FILE",
                  "With --predictor activation-aware, file that keeps the activation matrices of "
                  "past requests: read where it exists, written at the end",
                  flags.options.activation_file);
}

void add_lossy_flags(CLI::App& command, RunLimits& limits) {
  add_integer(command, "--attention-window", {1, 1 << 30},
              "Lossy: tokens attend to the last N tokens only, and to those of --attention-sinks",
              [&limits](int64_t value) { limits.attention_window = value; });
  add_integer(command, "--attention-sinks", {0, 1 << 30},
              "Lossy: with --attention-window, tokens attend to the first N tokens as well "
              "(default 0)",
              [&limits](int64_t value) { limits.attention_sinks = value; });
}

void add_group_flags(CLI::App& command, RunLimits& limits) {
  add_integer(command, "--micro-batch", {1, 65536},
              "Sequences computed by one kernel call (default: the plan chooses)",
              [&limits](int64_t value) { limits.micro_batch = value; });
  add_integer(command, "--n-batches", {1, 4096},
              "Micro-batches that share one load of the weights (default: the plan chooses)",
              [&limits](int64_t value) { limits.micro_batches = value; });
  add_integer(command, "--path-length", {1, kMaxPathLength},
              "Layers before a layer whose choices predict its hot experts (default 1)",
              [&limits](int64_t value) { limits.path_length = static_cast<int>(value); });
  add_integer(command, "--hot-experts", {1, 65536},
              "Experts prefetched for a layer (default: as many as a token chooses, or more by "
              "prediction)",
              [&limits](int64_t value) { limits.hot_experts = value; });
}

void add_experiment_flags(CLI::App& command, SessionFlags& flags) {
  RunLimits& limits = flags.options.limits;
  PipelineOptions& pipeline = flags.options.pipeline;
  add_integer(command, "--expert-slots", {1, 1 << 30},
              "For experiments: at most N experts in memory (of the GPU, where one computes)",
              [&limits](int64_t value) { limits.expert_slots = value; });
  command
      .add_option("--eviction", limits.eviction,
                  "Expert that leaves memory first: furthest (its next use is furthest away; "
                  "default, but with few sequences on a GPU lfu), lru (least recently used), lfu "
                  "(least frequently used), activation-aware (least probable, weighed by the "
                  "layers until its use), plec (not predicted, then completed)")
      ->check(CLI::IsMember(names_of(eviction_rule_names())));
  command
      .add_option_function<std::string>(
          "--packing",
          [&flags](const std::string& name) {
            flags.options.packing = name == "never"    ? Packing::never
                                    : name == "always" ? Packing::always
                                                       : Packing::where_faster;
          },
          "bf16 experts of which not all fit can be packed into 12 bits a weight while they are "
          "read, which loses nothing: auto (default: where a prediction finds that faster), never, "
          "always (where RAM holds all of them packed)")
      ->check(CLI::IsMember({"auto", "never", "always"}));
  command
      .add_option_function<std::string>(
          "--kernels",
          [&flags](const std::string& name) {
            flags.options.kernels = kernels_choice("--kernels", name);
          },
          "Implementation of the CPU's arithmetic: cpu (default, fast) or reference (plain)")
      ->type_name("NAME");
  add_size(command, "--disk-speed", "For experiments: read at most this many bytes a second",
           [&pipeline](uint64_t value) { pipeline.disk.bytes_per_second = value; });
  add_integer(
      command, "--stress", {0, INT64_MAX},
      "For tests: delay tasks, and reorder those that may be reordered, by this seed",
      [&pipeline](int64_t value) { pipeline.executor.stress_seed = static_cast<uint64_t>(value); });
}

}  // namespace

void add_memory_flags(CLI::App& command, SessionFlags& flags) {
  RunLimits& limits = flags.options.limits;
  add_size(command, "--ram",
           "At most this much memory for the process, e.g. 3GiB (default: all that is free, less a "
           "sixteenth)",
           [&limits](uint64_t value) {
             limits.ram_bytes = value;
             allow_memory(value);
           });
  command
      .add_option("--device", flags.options.device,
                  "Processor that computes: auto (default: a GPU where one can be used), cpu, gpu, "
                  "or the number of a GPU")
      ->type_name("NAME");
  add_size(command, "--vram",
           "At most this much memory of the GPU (default: all that is free, less a sixteenth)",
           [&limits](uint64_t value) { limits.vram_bytes = value; });
  add_size(command, "--kv-limit",
           "At most this much of --ram (of --vram with a GPU) for keys and values",
           [&limits](uint64_t value) { limits.kv_bytes = value; });
  command
      .add_option_function<std::string>(
          "--kv-spill",
          [&flags](const std::string& folder) { flags.options.pipeline.spill_folder = folder; },
          "Keep keys and values that do not fit in memory in a temporary file in this folder")
      ->type_name("FOLDER");
}

void add_session_flags(CLI::App& command, SessionFlags& flags) {
  add_memory_flags(command, flags);
  add_integer(
      command, "--stall-limit", {0, 1'000'000},
      "Seconds without the end of a task (a unit of weights read or copied, a computation) after "
      "which the command ends with exit code 6 (default 600; 0: it waits for ever)",
      [&flags](int64_t value) {
        flags.options.pipeline.executor.stall_limit = std::chrono::seconds(value);
      });
  add_integer(
      command, "--draft-tokens", {0, 64},
      "Speculative decoding: in every pass, verify up to N tokens that are drafted from the "
      "text so far, where that pays (default 0). The tokens stay the same; on a GPU by the "
      "rule for bf16 products",
      [&flags](int64_t value) { flags.options.limits.draft_tokens = value; });
  add_output_flags(command, flags);
  const std::string usual = command.option_defaults()->get_group();
  command.option_defaults()->group(kExperimentGroup);
  add_strategy_flags(command, flags);
  add_prediction_flags(command, flags);
  add_lossy_flags(command, flags.options.limits);
  add_group_flags(command, flags.options.limits);
  add_experiment_flags(command, flags);
  command.option_defaults()->group(usual);
}

void refuse_warm_up(const SessionFlags& flags, std::string_view why) {
  if (!flags.warm_up.empty()) {
    fail(ErrorKind::usage, "--warm-up: expected no such flag; {}", why);
  }
}

void refuse_run_flags(const SessionFlags& flags, std::string_view why) {
  const SessionOptions& options = flags.options;
  const auto refuse_if = [&](bool given, std::string_view flag) {
    if (given) fail(ErrorKind::usage, "{}: expected no such flag; {}", flag, why);
  };
  refuse_if(!flags.trace_file.empty(), "--trace");
  refuse_if(!flags.timeline_file.empty(), "--timeline");
  refuse_if(!flags.save_correlation_file.empty(), "--save-correlation");
  refuse_warm_up(flags, why);
  refuse_if(options.kernels != "cpu", "--kernels");
  refuse_if(options.pipeline.executor.stress_seed.has_value(), "--stress");
  refuse_if(options.pipeline.executor.stall_limit != ExecutorOptions().stall_limit,
            "--stall-limit");
}

SessionOptions SessionFlags::session_options() const {
  SessionOptions wanted = options;
  if (!trace_file.empty() || !timeline_file.empty()) wanted.pipeline.keep_spans = kMostSpans;
  return wanted;
}

}  // namespace klotski
