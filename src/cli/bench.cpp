#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/bytes.h"
#include "base/error.h"
#include "base/json.h"
#include "base/numbers.h"
#include "base/process_memory.h"
#include "cli/bench_report.h"
#include "cli/command.h"
#include "cli/comparison.h"
#include "cli/load.h"
#include "cli/sample_text.h"

namespace klotski {

namespace {

constexpr uint64_t kMaxTextBytes = 64 * kMiB;
constexpr int64_t kBatch = 4;  // sequences of a micro-batch and micro-batches of a group
// Of the fastest's tokens a second: what reaches less is not run again to be compared.
constexpr double kInTheRunning = 0.75;

struct BenchOptions {
  ModelChoice model;
  std::shared_ptr<PipelineFlags> pipeline = std::make_shared<PipelineFlags>();
  std::string text;
  bool ablation = false;
  bool compare = false;
  std::string sweep;
  std::vector<int64_t> n_values = {1, 2, 4, 8};
  std::vector<int64_t> batch_values = {4, 8, 16};
  std::optional<int64_t> sequences;
  int64_t prompt_tokens = 32;
  int64_t generate = 8;
  int64_t repeat = 1;
  bool json = false;
  std::string json_file;
  std::string markdown_file;

  bool several_strategies() const { return ablation || compare; }
};

struct StrategyRow {
  Strategy strategy;
  bool cpu_attention;
};

// The paper's rows; then, on a device, what the CPU adds to the link alone: experts, attention, and
// both.
std::vector<StrategyRow> strategy_rows(bool on_device) {
  std::vector<StrategyRow> rows;
  for (const bool cpu_attention : {false, true}) {
    for (size_t i = 0; i < kStrategies; ++i) {
      const auto strategy = static_cast<Strategy>(i);
      const StrategyProperties& has = properties_of(strategy);
      if (has.needs_device && !on_device) continue;
      const bool attends_so = cpu_attention ? has.needs_device : !has.needs_cpu_attention;
      if (attends_so) rows.push_back({strategy, cpu_attention});
    }
  }
  return rows;
}

std::vector<Setting> settings_of(const BenchOptions& options) {
  std::vector<Setting> settings;
  const auto add = [&](std::string name, const PipelineFlags& flags) {
    settings.push_back({.name = std::move(name), .flags = flags, .runs = {}});
  };
  if (options.several_strategies()) {
    const bool on_device = target_of(*options.pipeline).device != nullptr;
    for (const StrategyRow& row : strategy_rows(on_device)) {
      if (options.compare && on_device && !properties_of(row.strategy).competes_on_device) continue;
      PipelineFlags flags = *options.pipeline;
      flags.limits.strategy = row.strategy;
      flags.limits.cpu_attention = row.cpu_attention;
      if (options.ablation) {
        flags.limits.micro_batch = flags.limits.micro_batch.value_or(kBatch);
        flags.limits.micro_batches = flags.limits.micro_batches.value_or(kBatch);
      }
      add(describe_strategy(row.strategy, row.cpu_attention), flags);
    }
    if (options.compare) add("auto", *options.pipeline);
  } else if (!options.sweep.empty()) {
    const bool over_n = options.sweep != "batch";
    const bool over_batch = options.sweep != "n";
    const std::vector<int64_t> given_n = {options.pipeline->limits.micro_batches.value_or(kBatch)};
    const std::vector<int64_t> given_batch = {
        options.pipeline->limits.micro_batch.value_or(kBatch)};
    for (const int64_t batch : over_batch ? options.batch_values : given_batch) {
      for (const int64_t n : over_n ? options.n_values : given_n) {
        PipelineFlags flags = *options.pipeline;
        flags.limits.micro_batches = n;
        flags.limits.micro_batch = batch;
        flags.limits.strategy = flags.limits.strategy.value_or(Strategy::klotski);
        add(fmt::format("n={} batch={}", n, batch), flags);
      }
    }
  } else {
    const std::optional<Strategy> strategy = options.pipeline->limits.strategy;
    add(strategy ? std::string(strategy_name(*strategy)) : "auto", *options.pipeline);
  }
  return settings;
}

// What a setting is measured with, in every run of it.
struct Prepared {
  MeasuredWork work;
  LearntChoices learnt;
};

Prepared prepared(const Setting& setting, const OpenedModel& opened, const Tokenizer& tokenizer,
                  const BenchOptions& options, std::string_view text) {
  const RunLimits& limits = setting.flags.limits;
  const int64_t sequences = options.sequences.value_or(limits.micro_batch.value_or(kBatch) *
                                                       limits.micro_batches.value_or(kBatch));
  MeasuredWork work =
      work_from_text(tokenizer, text, sequences, options.prompt_tokens, options.generate);
  LearntChoices learnt = learn_choices(opened, setting.flags, work);
  return {std::move(work), std::move(learnt)};
}

// By its first run.
bool out_of_the_running(const Setting& setting, const std::vector<Setting>& settings) {
  const auto rate = [](const Setting& one) { return one.runs.front().tokens_per_second(); };
  return std::any_of(settings.begin(), settings.end(), [&](const Setting& other) {
    return rate(setting) < kInTheRunning * rate(other);
  });
}

// One run of each setting after the other, then the next round: what comes and goes on a machine
// meets all of them alike.
void run_settings(std::vector<Setting>& settings, const OpenedModel& opened,
                  const Tokenizer& tokenizer, const BenchOptions& options, std::string_view text,
                  Foresight* foresight) {
  std::vector<Prepared> all_prepared;
  for (int64_t round = 0; round < options.repeat; ++round) {
    for (size_t i = 0; i < settings.size(); ++i) {
      Setting& setting = settings[i];
      if (round == 0) {
        all_prepared.push_back(prepared(setting, opened, tokenizer, options, text));
      } else if (options.compare && out_of_the_running(setting, settings)) {
        continue;
      }
      write_err(fmt::format("measuring {} ({} of {})\n", setting.name, round + 1, options.repeat));
      const auto& [work, learnt] = all_prepared[i];
      setting.runs.push_back(
          measure(opened, setting.flags, work,
                  {.learnt = learnt,
                   .foresight = foresight,
                   .label = options.several_strategies() ? setting.name : std::string()}));
    }
  }
  for (Setting& setting : settings) {
    std::sort(setting.runs.begin(), setting.runs.end(),
              [](const Measurement& a, const Measurement& b) { return a.seconds < b.seconds; });
  }
}

// Of every setting that was foreseen; doctor remembers them.
std::string comparisons(const std::vector<Setting>& settings, const OpenedModel& opened) {
  std::string text;
  for (const Setting& setting : settings) {
    const Measurement& measured = setting.median();
    if (!measured.predicted) continue;
    text += fmt::format("\nPlanned and measured, {}:\n\n{}", setting.name,
                        compare({.command = "bench",
                                 .opened = opened,
                                 .plan = measured.plan,
                                 .sequences = std::ssize(measured.generated),
                                 .planned = figures_of(*measured.predicted),
                                 .measured = figures_of(measured)}));
  }
  return text;
}

// Strategies may differ in time, never in what they generate. A device rounds the sums of a row
// differently where other rows are computed with it, so that nearly equal logits may change places:
// there only runs of one setting must be equal, and it is said how many sequences are.
// `one_work`: all settings had the same prompts.
std::string compared_output(const std::vector<Setting>& settings, bool on_device, bool one_work) {
  std::string text;
  const auto& first = settings.front().runs.front().generated;
  for (const Setting& setting : settings) {
    const bool alone = on_device || !one_work;
    const auto& expected = alone ? setting.runs.front().generated : first;
    for (const Measurement& run : setting.runs) {
      if (run.generated != expected) {
        fail(ErrorKind::internal, "{} generated other tokens than {}", setting.name,
             alone ? "before" : settings.front().name);
      }
    }
    if (!on_device || !one_work) continue;
    size_t same = 0;
    for (size_t i = 0; i < first.size(); ++i) same += expected[i] == first[i] ? 1 : 0;
    text += fmt::format("{}: {} of {} sequences as {}\n", setting.name, same, first.size(),
                        settings.front().name);
  }
  return text;
}

int bench_command(const BenchOptions& options) {
  if (options.ablation + options.compare + !options.sweep.empty() > 1) {
    fail(ErrorKind::usage, "--ablation, --compare and --sweep: expected at most one of them");
  }
  if (options.compare && options.pipeline->limits.strategy) {
    fail(ErrorKind::usage, "--compare measures several strategies: expected no --strategy with it");
  }
  const OpenedModel opened = open_model(options.model);
  const Tokenizer tokenizer = Tokenizer::load(opened.folder);
  const std::string text = text_or_sample(options.text, "--text", kMaxTextBytes);
  std::vector<Setting> settings = settings_of(options);
  const auto [foresight, why_no_foresight] = foresight_for(opened, *options.pipeline);
  write_err(why_no_foresight);
  run_settings(settings, opened, tokenizer, options, text, foresight.get());
  std::string markdown = settings_table(settings);
  if (options.several_strategies() || options.repeat > 1) {
    const bool on_device = target_of(*options.pipeline).device != nullptr;
    const std::string same = compared_output(
        settings, on_device, options.sweep.empty() || options.sequences.has_value());
    if (!same.empty()) markdown += "\n" + same;
  }
  if (options.sweep.empty()) markdown += "\n" + accuracy_table(settings.back());
  markdown += comparisons(settings, opened);
  markdown += fmt::format("\nPeak memory {}", format_bytes(peak_resident_bytes()));
  if (options.pipeline->limits.ram_bytes) {
    markdown += fmt::format(" of {} allowed", format_bytes(*options.pipeline->limits.ram_bytes));
  }
  markdown += ".\n";
  Json report = {{"model", opened.description.family},
                 {"precision", precision_name(options.pipeline->limits.precision)},
                 {"prompt_tokens", options.prompt_tokens},
                 {"generated_tokens", options.generate},
                 {"peak_resident_bytes", peak_resident_bytes()},
                 {"settings", Json::array()}};
  for (const Setting& setting : settings) report["settings"].push_back(as_json(setting));
  const std::string json = report.dump(2) + "\n";
  write_out(options.json ? json : markdown);
  const auto write = [](const std::string& path, std::string_view option,
                        const std::string& content) {
    if (!path.empty())
      write_argument_file(path, option, [&](std::ostream& out) { out << content; });
  };
  write(options.markdown_file, "--markdown", markdown);
  write(options.json_file, "--json-file", json);
  return 0;
}

std::vector<int64_t> number_list(const std::string& option, const std::string& text) {
  std::vector<int64_t> values;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const auto value = parse_int(std::string_view(text).substr(begin, end - begin));
    if (!value || *value < 1 || *value > 4096) {
      fail(ErrorKind::usage, "{}: expected numbers from 1 to 4096 with commas between, found {}",
           option, in_quotes(text));
    }
    values.push_back(*value);
    begin = end + 1;
  }
  return values;
}

}  // namespace

void add_bench_command(CLI::App& app, Action& action) {
  auto options = std::make_shared<BenchOptions>();
  CLI::App* command = app.add_subcommand(
      "bench", "Measure a model on prompts of real text; compare strategies or group sizes");
  add_model_option(*command, options->model);
  command->add_flag("--ablation", options->ablation,
                    "Run all strategies side by side on the same work, in groups of one size");
  command->add_flag("--compare", options->compare,
                    "Run the strategies that the planner has to choose from, each in the groups "
                    "that suit it, and what it chooses by itself");
  command->add_option("--sweep", options->sweep, "Vary the group: n, batch or n,batch")
      ->check(CLI::IsMember({"n", "batch", "n,batch"}));
  const auto add_list = [&](const char* name, const char* help, std::vector<int64_t>* values) {
    command
        ->add_option_function<std::string>(
            name,
            [options, name, values](const std::string& text) { *values = number_list(name, text); },
            help)
        ->type_name("N,N,...");
  };
  add_list("--n-values", "Micro-batches a group to try (default 1,2,4,8)", &options->n_values);
  add_list("--batch-values", "Sequences a micro-batch to try (default 4,8,16)",
           &options->batch_values);
  command->add_option("--text", options->text, "Text to cut prompts from; - is stdin")
      ->type_name("FILE");
  add_integer(*command, "--sequences", {1, 1 << 20},
              "Prompts (default: as many as a group has, 16 where its size is chosen)",
              [options](int64_t value) { options->sequences = value; });
  add_integer(*command, "--prompt-tokens", {1, 1 << 20}, "Tokens of a prompt (default 32)",
              [options](int64_t value) { options->prompt_tokens = value; });
  add_integer(*command, "--generate", {1, 1 << 20}, "Tokens generated for each (default 8)",
              [options](int64_t value) { options->generate = value; });
  add_integer(*command, "--repeat", {1, 1000},
              "Runs of each setting, round by round; the median counts (default 1). With --compare "
              "what is a quarter slower than the fastest runs once",
              [options](int64_t value) { options->repeat = value; });
  command->add_flag("--json", options->json, "Print JSON instead of Markdown");
  add_output_file(*command, "--json-file", "FILE", "Write the results as JSON", options->json_file);
  add_output_file(*command, "--markdown", "FILE", "Write the tables as Markdown",
                  options->markdown_file);
  add_pipeline_flags(*command, options->pipeline);
  command->footer(
      "Group size and strategy are chosen by prediction unless flags fix them; with --ablation "
      "and\n"
      "--sweep a group has 4 x 4 prompts unless flags say otherwise. Every setting starts with an\n"
      "empty expert cache and a correlation table learnt from the first prompts; plans count on "
      "what\n"
      "17 tokens generated after them choose, or where fewer are asked for on what the prompts "
      "do.\n"
      "tokens/s counts generated tokens over prefill and decode; gain is over the line before. "
      "With\n"
      "--ablation the strategy's name is added to the names of --trace and --timeline.");
  command->callback([options, &action] { action = [options] { return bench_command(*options); }; });
}

}  // namespace klotski
