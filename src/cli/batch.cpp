#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "base/error.h"
#include "batch/batch_job.h"
#include "batch/batch_plan.h"
#include "cli/command.h"
#include "cli/model_flags.h"
#include "cli/session_output.h"
#include "cli/signals.h"
#include "engine/generation_defaults.h"
#include "session/comparison.h"
#include "session/model_tokenizer.h"

namespace klotski {

namespace {

struct BatchOptions {
  ModelFlags model;
  std::string input;
  std::string output;
  SessionFlags flags;
  bool overwrite = false;
  int64_t max_tokens = 256;
  std::optional<int64_t> context;
};

// Progress while the job runs and a summary at its end.
class Report {
 public:
  Report(int64_t rows, const Pipeline& pipeline)
      : rows_(rows),
        pipeline_(pipeline),
        before_(pipeline.report().totals),
        computed_(pipeline.report().tokens) {}

  void update(const BatchCounts& counts) {
    const double seconds = elapsed();
    const PipelineReport now = pipeline_.report();
    clock_.pass(now.tokens - computed_, counts.generated_tokens - generated_);
    computed_ = now.tokens;
    generated_ = counts.generated_tokens;
    std::string remark = speeds(counts, seconds);
    if (counts.rows_done() > 0) {
      const double left = seconds * static_cast<double>(rows_ - counts.rows_done()) /
                          static_cast<double>(counts.rows_done());
      remark += fmt::format(", {:.0f} s left", std::max(left, 0.0));
    }
    const CacheCounters& experts = now.experts;
    if (experts.requests() > 0) {
      remark += fmt::format(", {:.1f} % of experts found", 100.0 * experts.hit_share());
    }
    status_->update(static_cast<uint64_t>(counts.rows_done()), static_cast<uint64_t>(rows_),
                    remark);
  }

  void finish(const BatchCounts& counts) {
    status_.reset();
    const double seconds = elapsed();
    write_err(fmt::format(
        "{} of {} rows done: {} ok, {} failed; {} prompt and {} generated tokens in {:.1f} s "
        "({})\n",
        counts.rows_done(), rows_, counts.rows_ok, counts.rows_failed, counts.prompt_tokens,
        counts.generated_tokens, seconds, speeds(counts, seconds)));
  }

  // The whole job as a measurement.
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
  double elapsed() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - started_).count();
  }
  static std::string speeds(const BatchCounts& counts, double seconds) {
    const double divisor = std::max(seconds, 1e-9);
    return fmt::format("{:.1f} generated and {:.1f} prompt tokens/s",
                       static_cast<double>(counts.generated_tokens) / divisor,
                       static_cast<double>(counts.prompt_tokens) / divisor);
  }

  int64_t rows_;
  const Pipeline& pipeline_;
  std::chrono::steady_clock::time_point started_ = std::chrono::steady_clock::now();
  TimelineTotals before_;  // totals of the warm-up, which is not the job's
  PassClock clock_;
  int64_t computed_;
  int64_t generated_ = 0;
  std::optional<StatusLine> status_{std::in_place, "batch", "rows"};
};

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
  remember_run(run);
  return planned_beside_measured(run.planned, run.measured);
}

int batch_command(BatchOptions options) {
  options.flags.show_plan = true;
  InputFile input(options.input);
  const InputSize size = measure_rows(input);
  const auto model = open_model(options.model);
  const Tokenizer tokenizer = load_tokenizer(model->folder);
  const TokenizerConfig config = load_tokenizer_config(model->folder);
  std::optional<ChatTemplate> chat_template;
  if (config.chat_template) {
    chat_template = ChatTemplate::parse(*config.chat_template, "chat template");
  }
  const RowDefaults defaults{.tokenizer = tokenizer,
                             .tokenizer_config = config,
                             .model = model->description,
                             .chat_template = chat_template ? &*chat_template : nullptr,
                             .sampling = suggested_sampling(model->folder),
                             .max_tokens = options.max_tokens,
                             .lossy = losses(options.flags.options.limits, weight_types(*model))};
  const UsualRow usual = usual_row(input, defaults);
  Session session(model, options.flags.session_options(), events_on_stderr(options.flags));
  const Workload workload = load_for_batch(
      session,
      {.size = size, .usual = usual, .max_tokens = options.max_tokens, .context = options.context});
  warm_up(options.flags, session, tokenizer);
  ResultFile output(options.output, options.overwrite, input.descriptor());

  let_signals_ask();
  Report report(size.rows, session.pipeline());
  const RunPlan& plan = session.prepared().plan();
  BatchJob job(session.engine(), defaults, options.model.name(), input, output,
               window_for(plan.policy, usual));
  const BatchCounts counts =
      job.run({.stop_asked = [] { return signal_asking_to_stop() != 0; },
               .after_step = [&](const BatchCounts& now) { report.update(now); }});
  report.finish(counts);
  write_err(format_summary(session.prepared()));
  write_session_files(options.flags, session);
  write_err(comparison(session, report.measurement(counts, plan), counts, workload));
  const int signal = signal_asking_to_stop();
  return signal != 0 && counts.rows_done() < size.rows ? 128 + signal : 0;
}

}  // namespace

void add_batch_command(CLI::App& app, Action& action) {
  auto options = std::make_shared<BatchOptions>();
  CLI::App* command =
      app.add_subcommand("batch", "Answer the requests of a JSONL file in OpenAI's batch format");
  add_model_flags(*command, options->model);
  command->add_option("-i,--input", options->input, "File of requests, one JSON object a line")
      ->type_name("FILE")
      ->required();
  command
      ->add_option("-o,--output", options->output,
                   "File for the results, one JSON object a line, in the order they finish")
      ->type_name("FILE")
      ->required();
  command->add_flag("--overwrite", options->overwrite,
                    "Replace the --output file if it exists (a job cannot be resumed yet)");
  add_integer(*command, "-n,--max-tokens", {1, 1 << 30},
              "Generate at most N tokens for a row that does not say how many (default 256)",
              [options](int64_t value) { options->max_tokens = value; });
  add_integer(
      *command, "--context", {1, 1 << 30},
      "Plan for rows of at most N tokens, prompt and answer together (default: by the longest "
      "row's size)",
      [options](int64_t value) { options->context = value; });
  add_session_flags(*command, options->flags);
  command->footer(
      "Where a row does not say how to sample, the model's suggestion holds, else the most likely\n"
      "token. A bad row gives an error row and the job goes on. SIGINT or SIGTERM ends the job\n"
      "after the running step; results written so far are kept.");
  command->callback([options, &action] { action = [options] { return batch_command(*options); }; });
}

}  // namespace klotski
