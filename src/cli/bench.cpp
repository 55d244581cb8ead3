#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "base/bytes.h"
#include "base/error.h"
#include "base/json.h"
#include "base/process_memory.h"
#include "cli/bench_evidence.h"
#include "cli/bench_report.h"
#include "cli/bench_serving.h"
#include "cli/command.h"
#include "cli/session_output.h"
#include "experts/predictor.h"
#include "session/comparison.h"

namespace klotski {

namespace {

// With --compare, a setting that reaches a smaller share than this of the fastest one's tokens a
// second is not run again.
constexpr double kInTheRunning = 0.75;

// The work of a setting and the choices learnt for it, equal in every run.
struct PreparedWork {
  MeasuredWork work;
  LearntChoices learnt;
};

// Whether a setting is too slow to be run again, by the first run of each setting.
bool out_of_the_running(const Setting& setting, const std::vector<Setting>& settings) {
  const auto rate = [](const Setting& one) { return one.runs.front().tokens_per_second(); };
  return std::any_of(settings.begin(), settings.end(), [&](const Setting& other) {
    return rate(setting) < kInTheRunning * rate(other);
  });
}

// Runs every setting once, then the next round: disturbances of the machine meet all of them alike.
void run_settings(std::vector<Setting>& settings, Session& session, const BenchOptions& options,
                  const std::function<MeasuredWork(int64_t sequences)>& work_of) {
  std::vector<PreparedWork> prepared;
  for (int64_t round = 0; round < options.repeat; ++round) {
    for (size_t i = 0; i < settings.size(); ++i) {
      Setting& setting = settings[i];
      if (round > 0 && options.compare && out_of_the_running(setting, settings)) continue;
      session.set_limits(setting.limits);
      if (round == 0) {
        MeasuredWork work = work_of(sequences_of(options, setting.limits));
        LearntChoices learnt = learn_choices(session, work);
        prepared.push_back({std::move(work), std::move(learnt)});
      }
      write_err(fmt::format("measuring {} ({} of {})\n", setting.name, round + 1, options.repeat));
      setting.runs.push_back(measure(session, prepared[i].work, prepared[i].learnt));
      write_setting_files(options, setting, session);
    }
  }
  for (Setting& setting : settings) {
    std::sort(setting.runs.begin(), setting.runs.end(),
              [](const Measurement& a, const Measurement& b) { return a.seconds < b.seconds; });
  }
}

// Plan and measurement of every setting that was foreseen, side by side; doctor remembers them.
std::string comparisons(const std::vector<Setting>& settings, const OpenedModel& opened) {
  std::string text;
  std::string why_not;
  for (const Setting& setting : settings) {
    const Measurement& measured = setting.median();
    if (!measured.predicted) continue;
    const ComparedRun run{.command = "bench",
                          .opened = opened,
                          .plan = measured.plan,
                          .sequences = std::ssize(measured.generated),
                          .planned = figures_of(*measured.predicted),
                          .measured = figures_of(measured)};
    const std::string this_one = remember_run(run);
    if (why_not.empty()) why_not = this_one;
    text += fmt::format("\nPlanned and measured, {}:\n\n{}", setting.name,
                        planned_beside_measured(run.planned, run.measured));
  }
  tell_if_not_remembered(why_not);
  return text;
}

std::string markdown_of(const std::vector<Setting>& settings, const BenchOptions& options,
                        const Session& session) {
  std::string text = settings_table(settings);
  const bool tokens_given = options.follow_text || !options.routing.empty();
  if (!tokens_given && (options.several_strategies() || options.repeat > 1)) {
    const std::string same = compared_output(
        settings, session.on_device(), options.sweep.empty() || options.sequences.has_value());
    if (!same.empty()) text += "\n" + same;
  }
  if (options.sweep.empty()) text += "\n" + accuracy_table(settings.back());
  text += comparisons(settings, session.model());
  text += fmt::format("\nPeak memory {}", format_bytes(peak_resident_bytes()));
  if (const std::optional<uint64_t>& ram = options.flags.options.limits.ram_bytes) {
    text += fmt::format(" of {} allowed", format_bytes(*ram));
  }
  return text + ".\n";
}

Json json_of(const std::vector<Setting>& settings, const BenchOptions& options,
             const Session& session) {
  RunsOfSettings runs;
  Json results = Json::array();
  for (const Setting& setting : settings) {
    results.push_back(as_json(setting));
    runs.push_back(results.back()["tokens_per_second_of_all_runs"]);
  }
  Json report = evidence_of(runs, session);
  report.update({{"model", session.description().family},
                 {"precision", precision_name(options.flags.options.limits.precision)},
                 {"prompt_tokens", options.prompt_tokens},
                 {"generated_tokens", options.generate},
                 {"peak_resident_bytes", peak_resident_bytes()},
                 {"settings", std::move(results)}});
  return report;
}

void check_options(const BenchOptions& options) {
  if (options.ablation + options.compare + !options.sweep.empty() > 1) {
    fail(ErrorKind::usage, "--ablation, --compare and --sweep: expected at most one of them");
  }
  if (!options.text.empty() && !options.routing.empty()) {
    fail(ErrorKind::usage, "--text and --routing: expected at most one of them");
  }
  if (options.follow_text && !options.routing.empty()) {
    fail(ErrorKind::usage, "--follow-text and --routing: expected at most one of them");
  }
  if (options.compare && options.flags.options.limits.strategy) {
    fail(ErrorKind::usage, "--compare measures several strategies: expected no --strategy with it");
  }
}

std::shared_ptr<const RecordedRouting> recorded_routing(const BenchOptions& options,
                                                        const ModelDescription& model) {
  if (options.routing.empty()) return nullptr;
  const RoutingTraceShape shape = routing_shape(model);
  const std::vector<std::filesystem::path> files(options.routing.begin(), options.routing.end());
  return std::make_shared<RecordedRouting>(
      read_stretches(files, shape, options.prompt_tokens + options.generate));
}

// Makes the work of settings from recorded routing, or else from text.
std::function<MeasuredWork(int64_t sequences)> work_source(const BenchOptions& options,
                                                           const Session& session) {
  if (const auto& routing = session.options().pipeline.recorded_routing) {
    return [routing, &options](int64_t sequences) {
      return work_from_routing(*routing, sequences, options.prompt_tokens);
    };
  }
  const auto tokenizer = std::make_shared<const Tokenizer>(text_tokenizer(options, session));
  const std::string text = text_or_sample(options.text, "--text", kMaxTextBytes);
  return [tokenizer, text, &options](int64_t sequences) {
    return work_from_text(*tokenizer, text, sequences, options.prompt_tokens, options.generate,
                          options.follow_text ? Answers::text : Answers::model);
  };
}

// Prints the results and writes them to the files that the options name.
void write_results(const BenchOptions& options, const std::string& markdown, const Json& json) {
  const std::string document = json.dump(2) + "\n";
  write_out(options.json ? document : markdown);
  const auto write = [](const std::string& path, std::string_view option,
                        const std::string& content) {
    if (path.empty()) return;
    write_argument_file(path, option, [&](std::ostream& out) { out << content; });
  };
  write(options.markdown_file, "--markdown", markdown);
  write(options.json_file, "--json-file", document);
}

int bench_command(const BenchOptions& options) {
  check_options(options);
  refuse_warm_up(options.flags, "every strategy begins alike");
  const auto model = open_model(options.model);
  SessionOptions session_options = options.flags.session_options();
  session_options.pipeline.recorded_routing = recorded_routing(options, model->description);
  if (!options.arrivals.empty()) session_options.engine = kServingEngine;
  Session session(model, session_options, events_on_stderr(options.flags));
  std::vector<Setting> settings = settings_of(options, session.on_device());
  if (!options.arrivals.empty()) {
    const ServingReport report = serving_report(options, settings, session);
    write_results(options, report.markdown, report.json);
    return 0;
  }
  const auto work_of = work_source(options, session);
  session.foresight_or_none();  // before anything is loaded: the machine is measured undisturbed
  run_settings(settings, session, options, work_of);
  write_results(options, markdown_of(settings, options, session),
                json_of(settings, options, session));
  return 0;
}

}  // namespace

void add_bench_command(CLI::App& app, Action& action) {
  auto options = std::make_shared<BenchOptions>();
  CLI::App* command = app.add_subcommand(
      "bench", "Measure a model on prompts of real text; compare strategies or group sizes");
  add_model_flags(*command, options->model);
  command->add_flag(
      "--ablation", options->ablation,
      "Run all strategies one after the other on the same work, in groups of one size");
  command->add_flag("--compare", options->compare,
                    "Run the strategies from which the planner chooses, each in groups of the size "
                    "that suits it, and the planner's own choice");
  command
      ->add_option(
          "--sweep", options->sweep,
          "Vary the size of the group: its micro-batches (n), their sequences (batch) or both "
          "(n,batch)")
      ->check(CLI::IsMember({"n", "batch", "n,batch"}));
  add_integers(*command, "--n-values", {1, 4096},
               "With --sweep, numbers of micro-batches in a group (default 1,2,4,8)",
               options->n_values);
  add_integers(*command, "--batch-values", {1, 4096},
               "With --sweep, numbers of sequences in a micro-batch (default 4,8,16)",
               options->batch_values);
  command
      ->add_option("--text", options->text,
                   "File of text to cut prompts from; - is standard input (default: a sample)")
      ->type_name("FILE");
  command
      ->add_option("--tokenizer", options->tokenizer,
                   "Model folder, tokenizer file or GGUF file whose tokenizer reads the text "
                   "(default: the model's, which a file of weights may lack)")
      ->type_name("PATH");
  command->add_flag("--follow-text", options->follow_text,
                    "Prompts are followed by the tokens that follow them in the text, not by "
                    "generated ones, and settings are not compared by what they generated: a "
                    "model of random weights repeats itself, and needs few experts for that");
  command
      ->add_option(
          "--routing", options->routing,
          "Routing traces (klotski trace) whose tokens and experts the sequences follow in "
          "place of text and of the gates' choices: real locality with any weights of that "
          "routing shape")
      ->type_name("TRACE...");
  add_integer(
      *command, "--sequences", {1, 1 << 20},
      "Number of prompts (default: as many as a group has, 16 where the planner chooses its "
      "size)",
      [options](int64_t value) { options->sequences = value; });
  add_integer(*command, "--prompt-tokens", {1, 1 << 20}, "Tokens of each prompt (default 32)",
              [options](int64_t value) { options->prompt_tokens = value; });
  add_integer(*command, "--generate", {1, 1 << 20}, "Tokens generated for each prompt (default 8)",
              [options](int64_t value) { options->generate = value; });
  add_integer(*command, "--repeat", {1, 1000},
              "Run each setting N times, round by round, and report the median (default 1). With "
              "--compare a setting a quarter slower than the fastest runs once",
              [options](int64_t value) { options->repeat = value; });
  add_serving_flags(*command, *options);
  command->add_flag("--json", options->json, "Print the results as JSON instead of Markdown");
  add_output_file(*command, "--json-file", "FILE",
                  "Write the results to this file as JSON, with commit, command line, machine, "
                  "repetitions and their spread",
                  options->json_file);
  add_output_file(*command, "--markdown", "FILE", "Write the tables to this file as Markdown",
                  options->markdown_file);
  add_session_flags(*command, options->flags);
  command->footer(
      "Group size and strategy are chosen by prediction unless flags fix them; with --ablation "
      "and\n"
      "--sweep a group has 4 x 4 prompts unless flags say otherwise. Every setting starts with an\n"
      "empty expert cache and a correlation table learnt from the first prompts. Plans count on "
      "the\n"
      "experts that 17 tokens generated after these prompts choose; where --generate is smaller, "
      "on\n"
      "those that the prompts choose.\n"
      "tokens/s counts generated tokens over prefill and decode; gain is over the line before. "
      "With\n"
      "--ablation the strategy's name is added to the names of --trace and --timeline.");
  command->callback([options, command, &action] {
    check_serving_flags(*command, *options);
    action = [options] { return bench_command(*options); };
  });
}

}  // namespace klotski
