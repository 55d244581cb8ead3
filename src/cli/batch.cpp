#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "base/error.h"
#include "base/memory_limit.h"
#include "batch/batch_job.h"
#include "cli/command.h"
#include "cli/load.h"
#include "cli/signals.h"
#include "engine/engine.h"
#include "engine/generation_defaults.h"

namespace klotski {

namespace {

struct Options {
  std::string model;
  std::string input;
  std::string output;
  bool overwrite = false;
  int64_t max_tokens = 256;
};

// Progress while the job runs and a summary at its end.
class Report {
 public:
  // `expert_hit_rate` gives the share of experts found in fast memory, where that is known.
  Report(int64_t rows, std::function<std::optional<double>()> expert_hit_rate)
      : rows_(rows), expert_hit_rate_(std::move(expert_hit_rate)) {}

  void update(const BatchCounts& counts) {
    const double seconds = elapsed();
    std::string remark = speeds(counts, seconds);
    if (counts.rows_done() > 0) {
      const double left = seconds * static_cast<double>(rows_ - counts.rows_done()) /
                          static_cast<double>(counts.rows_done());
      remark += fmt::format(", {:.0f} s left", std::max(left, 0.0));
    }
    if (const auto rate = expert_hit_rate_()) {
      remark += fmt::format(", {:.1f} % of experts found", 100.0 * *rate);
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
  std::function<std::optional<double>()> expert_hit_rate_;
  std::chrono::steady_clock::time_point started_ = std::chrono::steady_clock::now();
  std::optional<StatusLine> status_{std::in_place, "batch", "rows"};
};

// Room for a window of whole contexts, but no more than half of what the weights leave.
uint64_t kv_bytes_for(const OpenedModel& opened) {
  const uint64_t context =
      static_cast<uint64_t>(PagedKvCache::pages_for(opened.description.max_positions)) *
      PagedKvCache::page_bytes(opened.description);
  const uint64_t weights = ResidentModel::weight_bytes(opened.description, opened.checkpoint);
  const uint64_t available = available_memory_bytes();
  const uint64_t room = available > weights ? (available - weights) / 2 : 0;
  return std::min(room, context * static_cast<uint64_t>(BatchWindow().rows));
}

int batch_command(const Options& options) {
  InputFile input(options.input);
  const int64_t rows = count_rows(input);
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
                             .max_tokens = options.max_tokens};
  const uint64_t kv_bytes = kv_bytes_for(opened);
  const ResidentModel model = load_weights(opened, kv_bytes);
  Engine engine(model, reference_ops(), {.kv_bytes = kv_bytes});
  OutputFile output(options.output, options.overwrite, input.descriptor());

  let_signals_ask();
  // Every expert of a resident model is in memory, so there is no rate to show.
  Report report(rows, [] { return std::optional<double>(); });
  BatchJob job(engine, defaults, options.model, input, output);
  const BatchCounts counts =
      job.run({.stop_asked = [] { return signal_asking_to_stop() != 0; },
               .after_step = [&](const BatchCounts& now) { report.update(now); }});
  report.finish(counts);
  const int signal = signal_asking_to_stop();
  return signal != 0 && counts.rows_done() < rows ? 128 + signal : 0;
}

}  // namespace

void add_batch_command(CLI::App& app, Action& action) {
  auto options = std::make_shared<Options>();
  CLI::App* command =
      app.add_subcommand("batch", "Answer the requests of a JSONL file in OpenAI's batch format");
  command->add_option("MODEL", options->model, "Folder, bundled name or repository id")->required();
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
  command->footer(
      "Where a row does not say how to sample, the model's suggestion holds, else the most likely\n"
      "token. A bad row gives an error row and the job goes on. SIGINT or SIGTERM ends the job\n"
      "after the running step; results written so far are kept.");
  command->callback([options, &action] { action = [options] { return batch_command(*options); }; });
}

}  // namespace klotski
