#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "base/error.h"
#include "batch/batch_job.h"
#include "batch/usual_row.h"
#include "cli/command.h"
#include "cli/comparison.h"
#include "cli/load.h"
#include "cli/pipeline_options.h"
#include "cli/signals.h"
#include "engine/engine.h"
#include "engine/generation_defaults.h"

namespace klotski {

namespace {

constexpr uint64_t kCopiesOfARow = 4;  // its line, its JSON, its prompt, its tokens

struct BatchOptions {
  ModelChoice model;
  std::string input;
  std::string output;
  std::shared_ptr<PipelineFlags> pipeline = std::make_shared<PipelineFlags>();
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

  // All of the job as it was measured.
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
  TimelineTotals before_;  // of a warm-up
  PassClock clock_;
  int64_t computed_;
  int64_t generated_ = 0;
  std::optional<StatusLine> status_{std::in_place, "batch", "rows"};
};

// Few rows are tokenised before the plan is made; the size of the longest bounds what any may need.
// A token has at least two bytes or so of JSON.
Workload workload_of(const InputSize& size, const UsualRow& usual, const BatchOptions& options,
                     const ModelDescription& model) {
  const auto bound = [&](int64_t tokens) {
    return std::min({tokens, model.max_positions, options.context.value_or(INT64_MAX)});
  };
  const int64_t generated = std::max<int64_t>(1, usual.generated_tokens);
  const int64_t most =
      bound(static_cast<int64_t>(size.longest_bytes / 2) + std::max(options.max_tokens, generated));
  return {.sequences = std::max<int64_t>(1, size.rows),
          .tokens_per_sequence = most,
          .prompt_tokens = most,
          .input_bytes = kCopiesOfARow * size.longest_bytes,
          .typical_tokens = std::min(most, bound(usual.prompt_tokens + generated)),
          .generated_tokens = generated};
}

// Enough rows in the engine that a whole group always has some to choose from.
BatchWindow window_for(const Policy& policy, const UsualRow& usual) {
  BatchWindow window;
  window.rows += policy.group.sequences();
  window.pending_tokens = std::max(window.pending_tokens, window.rows * usual.prompt_tokens);
  return window;
}

// Where the longest row cannot be planned for, rows as long as those that were looked at and the
// average one can: longer ones become error rows.
std::unique_ptr<PreparedModel> prepare(const OpenedModel& opened, const BatchOptions& options,
                                       Workload workload, int64_t fallback_tokens,
                                       Foresight* foresight) {
  try {
    return prepare_model(opened, *options.pipeline, workload, foresight);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::does_not_fit) throw;
  }
  workload.tokens_per_sequence = std::min(workload.tokens_per_sequence, fallback_tokens);
  workload.prompt_tokens = workload.tokens_per_sequence;
  return prepare_model(opened, *options.pipeline, workload, foresight);
}

// An average row by its size, as English text, or the longest of those that were looked at.
int64_t fallback_tokens(const InputSize& size, const UsualRow& usual, const BatchOptions& options) {
  const int64_t average = size.rows == 0 ? 0 : static_cast<int64_t>(size.bytes) / size.rows;
  return std::max(usual.most_tokens, average / 4 + options.max_tokens);
}

// What the plan foresees for the rows as they turned out, beside what they took. Nothing to compare
// where some failed or did not run.
std::string comparison(const Foresight& foresight, const OpenedModel& opened,
                       const Measurement& measured, const BatchCounts& counts,
                       const Workload& planned) {
  const int64_t rows = counts.rows_ok;
  if (rows == 0 || rows != planned.sequences || measured.generated_tokens < rows) return {};
  const PlannedWork work{.sequences = rows,
                         .prompt_tokens = std::max<int64_t>(1, measured.prompt_tokens / rows),
                         .generated_tokens = measured.generated_tokens / rows,
                         .at_once = sequences_at_once(opened.description, measured.plan, planned)};
  return compare({.command = "batch",
                  .opened = opened,
                  .plan = measured.plan,
                  .sequences = rows,
                  .planned = figures_of(foresight.predict(measured.plan, work)),
                  .measured = figures_of(measured)});
}

int batch_command(const BatchOptions& options) {
  options.pipeline->show_plan = true;
  InputFile input(options.input);
  const InputSize size = measure_rows(input);
  const OpenedModel opened = open_model(options.model);
  const Tokenizer tokenizer = Tokenizer::load(opened.folder);
  const TokenizerConfig config = TokenizerConfig::load(opened.folder);
  std::optional<ChatTemplate> chat_template;
  if (config.chat_template) {
    chat_template = ChatTemplate::parse(*config.chat_template, "chat template");
  }
  const RowDefaults defaults{.tokenizer = tokenizer,
                             .tokenizer_config = config,
                             .model = opened.description,
                             .chat_template = chat_template ? &*chat_template : nullptr,
                             .sampling = suggested_sampling(opened.folder),
                             .max_tokens = options.max_tokens,
                             .lossy = losses(*options.pipeline)};
  const UsualRow usual = usual_row(input, defaults);
  const Workload workload = workload_of(size, usual, options, opened.description);
  const auto [foresight, why_no_foresight] = foresight_for(opened, *options.pipeline);
  const auto model =
      prepare(opened, options, workload, fallback_tokens(size, usual, options), foresight.get());
  write_err(why_no_foresight);
  warm_up(*options.pipeline, *model, tokenizer);
  Engine engine(model->pipeline());
  ResultFile output(options.output, options.overwrite, input.descriptor());

  let_signals_ask();
  Report report(size.rows, model->pipeline());
  BatchJob job(engine, defaults, options.model.name(), input, output,
               window_for(model->policy(), usual));
  const BatchCounts counts =
      job.run({.stop_asked = [] { return signal_asking_to_stop() != 0; },
               .after_step = [&](const BatchCounts& now) { report.update(now); }});
  report.finish(counts);
  write_err(format_summary(*model));
  write_pipeline_files(*options.pipeline, *model);
  if (foresight && !options.pipeline->options.executor.stress_seed) {
    write_err(comparison(*foresight, opened, report.measurement(counts, model->plan()), counts,
                         workload));
  }
  const int signal = signal_asking_to_stop();
  return signal != 0 && counts.rows_done() < size.rows ? 128 + signal : 0;
}

}  // namespace

void add_batch_command(CLI::App& app, Action& action) {
  auto options = std::make_shared<BatchOptions>();
  CLI::App* command =
      app.add_subcommand("batch", "Answer the requests of a JSONL file in OpenAI's batch format");
  add_model_option(*command, options->model);
  command->add_option("-i,--input", options->input, "Requests, one JSON object a line")
      ->type_name("FILE")
      ->required();
  command->add_option("-o,--output", options->output, "Results, in the order they finish")
      ->type_name("FILE")
      ->required();
  command->add_flag("--overwrite", options->overwrite,
                    "Replace an output that is there (a job cannot be resumed yet)");
  add_integer(*command, "-n,--max-tokens", {1, 1 << 30},
              "Most tokens to generate where a row does not say (default 256)",
              [options](int64_t value) { options->max_tokens = value; });
  add_integer(*command, "--context", {1, 1 << 30},
              "Plan for rows of so many tokens, prompt and answer (default: by their size)",
              [options](int64_t value) { options->context = value; });
  add_pipeline_flags(*command, options->pipeline);
  command->footer(
      "Where a row does not say how to sample, the model's suggestion holds, else the most likely\n"
      "token. A bad row gives an error row and the job goes on. SIGINT or SIGTERM ends the job\n"
      "after the running step; results written so far are kept.");
  command->callback([options, &action] { action = [options] { return batch_command(*options); }; });
}

}  // namespace klotski
