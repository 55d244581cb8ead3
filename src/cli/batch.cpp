#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <thread>

#include "base/error.h"
#include "batch/batch_job.h"
#include "batch/batch_plan.h"
#include "batch/fingerprint.h"
#include "cli/batch_progress.h"
#include "cli/command.h"
#include "cli/model_flags.h"
#include "cli/session_output.h"
#include "cli/signals.h"
#include "engine/generation_defaults.h"
#include "engine/prompt.h"
#include "session/comparison.h"
#include "session/model_tokenizer.h"

namespace klotski {

namespace {

constexpr int kSomeRowsFailed = 7;  // exit code
constexpr size_t kReasonsShown = 5;

struct BatchOptions {
  ModelFlags model;
  std::string input;
  std::string output;
  std::string errors;
  SessionFlags flags;
  bool overwrite = false;
  bool ordered = false;
  ProgressForm progress = ProgressForm::automatic;
  int64_t max_tokens = 256;
  std::optional<int64_t> context;
  std::string target_language;  // empty: none
};

// Progress while the job runs and a summary at its end.
class Report {
 public:
  Report(const JobResults& results, Session& session, const ExpectedWork& work, ProgressForm form)
      : results_(results),
        engine_(session.engine()),
        pipeline_(session.pipeline()),
        estimate_(work),
        before_(pipeline_.report().totals),
        computed_before_(pipeline_.report().tokens),
        progress_(form) {}

  void update(const BatchCounts& counts) {
    clock_.pass(engine_.last_pass().decodes(), counts.generated_tokens - generated_);
    generated_ = counts.generated_tokens;
    progress_.update(figures(counts));
  }

  void finish(const BatchCounts& counts) {
    const ProgressFigures last = figures(counts);
    const bool complete = results_.rows_done() == results_.rows();
    progress_.end(last, complete ? "done" : "interrupted");
    write_err(fmt::format(
        "{} of {} rows done: {} ok, {} failed; {} prompt and {} generated tokens in {:.1f} s "
        "({:.1f} generated and {:.1f} prompt tokens/s)\n",
        last.rows_done, last.rows, last.rows_done - last.rows_failed, last.rows_failed,
        counts.prompt_tokens, counts.generated_tokens, last.seconds, last.generated_per_second,
        last.prompt_per_second));
    if (complete) return;
    const std::string left =
        last.run.seconds_left ? ", about " + time_in_words(*last.run.seconds_left) : "";
    write_err(fmt::format("interrupted with {} rows left{}; {}\n", last.rows - last.rows_done, left,
                          results_.journal().empty()
                              ? "a job whose output is no file cannot be resumed"
                              : "the same command goes on where this one stopped"));
  }

  // The whole run as a measurement.
  Measurement measurement(const BatchCounts& counts, const RunPlan& plan) const {
    Measurement measured;
    measured.plan = plan;
    measured.report = pipeline_.report();
    measured.report.totals -= before_;
    measured.seconds = clock_.prefill_seconds() + clock_.decode_seconds();
    measured.prefill_seconds = clock_.prefill_seconds();
    measured.decode_seconds = clock_.decode_seconds();
    measured.prompt_tokens = counts.prompt_tokens;
    measured.generated_tokens = counts.generated_tokens;
    measured.decoded_tokens = clock_.decoded_tokens();
    return measured;
  }

 private:
  ProgressFigures figures(const BatchCounts& counts) const {
    const PipelineReport now = pipeline_.report();
    // All generated tokens but the first of each row were computed besides the prompts.
    const int64_t prompts =
        now.tokens - computed_before_ - (counts.generated_tokens - counts.rows_begun);
    ProgressFigures figures;
    figures.rows = results_.rows();
    figures.rows_done = results_.rows_done();
    figures.rows_failed = results_.rows_failed();
    figures.seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - started_).count();
    figures.run = estimate_.after(figures.seconds, counts, std::max(prompts, counts.prompt_tokens));
    const double divisor = std::max(figures.seconds, 1e-9);
    figures.generated_per_second = static_cast<double>(counts.generated_tokens) / divisor;
    figures.prompt_per_second = static_cast<double>(counts.prompt_tokens) / divisor;
    if (now.experts.requests() > 0) figures.experts_found = now.experts.hit_share();
    return figures;
  }

  const JobResults& results_;
  const Engine& engine_;
  const Pipeline& pipeline_;
  ProgressEstimate estimate_;
  std::chrono::steady_clock::time_point started_ = std::chrono::steady_clock::now();
  TimelineTotals before_;  // totals of the warm-up, which is not the job's
  PassClock clock_;
  int64_t computed_before_;  // tokens of the warm-up
  int64_t generated_ = 0;
  BatchProgress progress_;
};

// The first reasons why rows failed.
class FailedRows {
 public:
  void add(int64_t line, const std::string& reason) {
    if (reasons_.size() < kReasonsShown) {
      reasons_.push_back(fmt::format("line {}: {}", line, one_line(reason, 300)));
    }
  }
  void report(int64_t failed, const std::string& file) const {
    if (failed == 0) return;
    for (const std::string& reason : reasons_) write_err("  " + reason + "\n");
    const int64_t more = failed - static_cast<int64_t>(reasons_.size());
    if (more > 0) write_err(fmt::format("  and {} more rows failed: see {}\n", more, file));
  }

 private:
  std::vector<std::string> reasons_;
};

// Waits a second for space on a full disk, and says so once each time it fills up.
class SpaceWait {
 public:
  bool operator()(const std::string& problem) {
    using namespace std::chrono_literals;
    const auto now = std::chrono::steady_clock::now();
    if (!last_ || now - *last_ > 5s) {
      write_err(
          fmt::format("\nklotski: {}; waiting: the job goes on by itself when there is space\n",
                      one_line(problem)));
    }
    for (int tenth = 0; tenth < 10 && signal_asking_to_stop() == 0; ++tenth) {
      std::this_thread::sleep_for(100ms);
    }
    last_ = std::chrono::steady_clock::now();
    return signal_asking_to_stop() == 0;
  }

 private:
  std::optional<std::chrono::steady_clock::time_point> last_;
};

// Seconds since 1970 for the results: now, or what SOURCE_DATE_EPOCH says, with which builds and
// runs that are to be compared byte for byte set the clock.
int64_t time_of_results() {
  const char* const given = std::getenv("SOURCE_DATE_EPOCH");
  if (!given) return static_cast<int64_t>(std::time(nullptr));
  const std::string_view text = given;
  int64_t seconds = 0;
  const auto end = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (end.ec != std::errc() || end.ptr != text.data() + text.size() || seconds < 0) {
    fail(ErrorKind::usage, "SOURCE_DATE_EPOCH: expected seconds since 1970, found {}",
         in_quotes(given));
  }
  return seconds;
}

// All that makes the results what they are, by the words of messages. Limits of memory are not
// among it: a job may go on with more.
OrderedJson identity_of(const BatchOptions& options, const InputSize& size, const Session& session,
                        const RowDefaults& defaults) {
  const SessionOptions& chosen = session.options();
  const ModelFlags& model = options.model;
  return {{"input", fmt::format("{} rows of hash {}", size.rows, size.hash)},
          {"model", fmt::format("hash {}", model_fingerprint(session.model()))},
          {"name of the model", model.name()},
          {"--seed", model.seed ? OrderedJson(*model.seed) : OrderedJson()},
          {"--share", model.share ? OrderedJson(*model.share) : OrderedJson()},
          {"version of this program", KLOTSKI_VERSION},
          {"--max-tokens", options.max_tokens},
          {"--context", options.context ? OrderedJson(*options.context) : OrderedJson()},
          {"--target-language", options.target_language},
          {"--ordered", options.ordered},
          {"--errors", options.errors},
          {"--precision", static_cast<int>(chosen.limits.precision)},
          {"--kernels", chosen.kernels},
          {"device", session.on_device() ? "a GPU" : "the CPU"},
          {"exactness", defaults.lossy}};
}

// The planned time of the rows as they turned out, and the time they took. Empty where some failed
// or did not run: then there is nothing to compare.
std::string comparison(Session& session, const Measurement& measured, const BatchCounts& counts,
                       const Workload& planned) {
  const Foresight* foresight = session.foresight_or_none();
  const int64_t rows = counts.rows_ok;
  const bool all_ran = rows > 0 && rows == planned.sequences && measured.generated_tokens >= rows;
  if (!foresight || !all_ran || session.options().pipeline.executor.stress_seed) return {};
  const PlannedWork work{
      .sequences = rows,
      .prompt_tokens = std::max<int64_t>(1, measured.prompt_tokens / rows),
      .generated_tokens = measured.generated_tokens / rows,
      .at_once = sequences_at_once(session.description(), measured.plan, planned)};
  const ComparedRun run{.command = "batch",
                        .opened = session.model(),
                        .plan = measured.plan,
                        .sequences = rows,
                        .planned = figures_of(foresight->predict(measured.plan, work)),
                        .measured = figures_of(measured)};
  tell_if_not_remembered(remember_run(run));
  return planned_beside_measured(run.planned, run.measured);
}

// The rows without a result, to plan for.
InputSize rows_left(const InputSize& size, const JobResults& results) {
  InputSize left = size;
  left.rows = size.rows - results.rows_done();
  left.bytes = size.rows == 0 ? 0
                              : static_cast<uint64_t>(static_cast<double>(size.bytes) *
                                                      static_cast<double>(left.rows) /
                                                      static_cast<double>(size.rows));
  return left;
}

// The planned time of the rows: that of some groups of them, with as many more as there are.
ExpectedWork expected_work(Session& session, const RunPlan& plan, const UsualRow& usual,
                           const Workload& workload) {
  constexpr int64_t kGroups = 2;
  ExpectedWork work{.rows = workload.sequences, .usual = usual};
  const Foresight* const foresight = session.foresight_or_none();
  if (!foresight || usual.most_tokens == 0) return work;
  const int64_t at_once = sequences_at_once(session.description(), plan, workload);
  const int64_t sequences = std::min(workload.sequences, std::max<int64_t>(1, kGroups * at_once));
  const Prediction planned =
      foresight->predict(plan, {.sequences = sequences,
                                .prompt_tokens = std::max<int64_t>(1, usual.prompt_tokens),
                                .generated_tokens = std::max<int64_t>(1, usual.generated_tokens),
                                .at_once = at_once});
  const double more = static_cast<double>(workload.sequences) / static_cast<double>(sequences);
  work.prefill_seconds = more * planned.prefill_seconds;
  work.decode_seconds = more * planned.decode_seconds;
  return work;
}

// Plans, loads and runs the rows that have no result yet.
void run_rows(const BatchOptions& options, Session& session, const RowDefaults& defaults,
              InputFile& input, const InputSize& size, JobResults& results) {
  const UsualRow usual = usual_row(input, defaults);
  const Workload workload = load_for_batch(session, {.size = rows_left(size, results),
                                                     .usual = usual,
                                                     .max_tokens = options.max_tokens,
                                                     .context = options.context});
  warm_up(options.flags, session, defaults.tokenizer);

  let_signals_ask();
  const RunPlan& plan = session.prepared().plan();
  const ExpectedWork work = expected_work(session, plan, usual, workload);
  Report report(results, session, work, options.progress);
  FailedRows failed;
  BatchJob job(session.engine(), defaults, options.model.name(), input, results,
               window_for(plan.policy, usual));
  const BatchCounts counts =
      job.run({.stop_asked = [] { return signal_asking_to_stop() != 0; },
               .after_step = [&](const BatchCounts& now) { report.update(now); },
               .row_failed = [&](int64_t line, const std::string& why) { failed.add(line, why); }});
  report.finish(counts);
  failed.report(results.rows_failed(), options.errors.empty() ? options.output : options.errors);
  write_session_files(options.flags, session);
  write_err(comparison(session, report.measurement(counts, plan), counts, workload));
}

int batch_command(BatchOptions options) {
  options.flags.show_plan = true;
  InputFile input(options.input);
  JobResults results({.output = options.output,
                      .errors = options.errors,
                      .overwrite = options.overwrite,
                      .ordered = options.ordered},
                     input.descriptor(), SpaceWait());
  const InputSize size = measure_rows(input);
  const auto model = open_model(options.model);
  const Tokenizer tokenizer = load_tokenizer(model->folder);
  const TokenizerConfig config = load_tokenizer_config(model->folder);
  std::optional<ChatTemplate> chat_template;
  if (config.chat_template) {
    chat_template = ChatTemplate::parse(*config.chat_template, "chat template");
  }
  const RowDefaults defaults{
      .tokenizer = tokenizer,
      .tokenizer_config = config,
      .model = model->description,
      .chat_template = chat_template ? &*chat_template : nullptr,
      .sampling = suggested_sampling(model->folder),
      .max_tokens = options.max_tokens,
      .lossy = losses(options.flags.options.limits, weight_types(*model)),
      .decoder_prompt = language_prompt(tokenizer, model->description, options.target_language)};
  std::optional<Session> session(std::in_place, model, options.flags.session_options(),
                                 events_on_stderr(options.flags));
  results.begin(identity_of(options, size, *session, defaults), size.rows, time_of_results());
  if (results.resumed()) {
    write_err(fmt::format("going on with {}: {} of {} rows are done\n",
                          path_in_quotes(results.journal()), results.rows_done(), size.rows));
  }
  if (results.rows_done() < size.rows) {
    run_rows(options, *session, defaults, input, size, results);
  } else {
    write_err(fmt::format("{} of {} rows done: {} ok, {} failed\n", size.rows, size.rows,
                          size.rows - results.rows_failed(), results.rows_failed()));
  }
  if (results.rows_done() < size.rows) return 128 + signal_asking_to_stop();
  session.reset();  // nothing that takes a while follows the end of the results
  results.finish();
  return results.rows_failed() > 0 ? kSomeRowsFailed : 0;
}

// Ends well where a signal came while the job waited for space on a full disk.
int batch_or_signal(const BatchOptions& options) {
  try {
    return batch_command(options);
  } catch (const DiskFull& full) {
    if (signal_asking_to_stop() == 0) throw;
    write_err(
        fmt::format("{}; the same command goes on where the journal ends once there is space\n",
                    one_line(full.what())));
    return 128 + signal_asking_to_stop();
  }
}

}  // namespace

void add_batch_command(CLI::App& app, Action& action) {
  auto options = std::make_shared<BatchOptions>();
  CLI::App* command =
      app.add_subcommand("batch", "Answer the requests of a JSONL file in OpenAI's batch format");
  add_model_flags(*command, options->model);
  command
      ->add_option(
          "-i,--input", options->input,
          "File of requests, one JSON object a line; gzip and Zstandard are unpacked; - is "
          "standard input")
      ->type_name("FILE")
      ->required();
  command
      ->add_option("-o,--output", options->output,
                   "File for the results, one JSON object a line, in the order they finish; - is "
                   "standard output")
      ->type_name("FILE")
      ->required();
  command
      ->add_option("--errors", options->errors,
                   "File for the rows that failed (default: among the other results)")
      ->type_name("FILE");
  command->add_flag("--ordered", options->ordered, "Write the results in the order of the input");
  command->add_flag("--overwrite", options->overwrite,
                    "Replace files that exist, when the new ones are complete");
  command
      ->add_option_function<std::string>(
          "--progress",
          [options](const std::string& form) {
            if (form != "auto" && form != "json" && form != "none") {
              fail(ErrorKind::usage, "--progress: expected auto, json or none, found {}",
                   in_quotes(form));
            }
            options->progress = form == "json"   ? ProgressForm::json
                                : form == "none" ? ProgressForm::none
                                                 : ProgressForm::automatic;
          },
          "Progress on standard error: auto, json (an object a second) or none")
      ->type_name("FORM");
  add_integer(*command, "-n,--max-tokens", {1, 1 << 30},
              "Generate at most N tokens for a row that does not say how many (default 256)",
              [options](int64_t value) { options->max_tokens = value; });
  add_integer(
      *command, "--context", {1, 1 << 30},
      "Plan for rows of at most N tokens, prompt and answer together (default: by the longest "
      "row's size)",
      [options](int64_t value) { options->context = value; });
  command
      ->add_option("--target-language", options->target_language,
                   "Language that a translating model writes, as the code of its token: fra_Latn")
      ->type_name("CODE");
  add_session_flags(*command, options->flags);
  command->footer(
      "Where a row does not say how to sample, the model's suggestion holds, else the most likely\n"
      "token. A bad row gives an error row, the job goes on and ends with exit code 7.\n"
      "FILE.journal beside the output keeps finished rows until all are done: after SIGINT,\n"
      "SIGTERM, a crash or a power failure the same command goes on where it stopped. While the\n"
      "disk is full the job waits.");
  command->callback(
      [options, &action] { action = [options] { return batch_or_signal(*options); }; });
}

}  // namespace klotski
