#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/cpu_limit.h"
#include "base/error.h"
#include "base/json.h"
#include "cli/command.h"
#include "cli/signals.h"
#include "experts/path_training.h"

namespace klotski {

namespace {

struct TrainOptions {
  std::vector<std::string> traces;
  std::vector<std::string> test_traces;
  std::string output;
  PathTrainingOptions training;
  double held_out_percent = 10.0;
  int64_t threads = 0;  // 0: all that may run at once
  bool resume = false;
  bool json = false;
};

// How well the experts of some sequences are predicted.
struct Judgement {
  std::string sequences;  // said of them in the report
  int64_t tokens = 0;
  Recall path;
  Recall popularity;
  Recall correlation;
};

struct TrainReport {
  int64_t parameters = 0;
  int64_t training_tokens = 0;
  double seconds = 0.0;                 // of training
  double microseconds_per_token = 0.0;  // of predicting, token by token
  std::vector<Judgement> judgements;
};

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::vector<std::filesystem::path> paths_of(const std::vector<std::string>& names) {
  return {names.begin(), names.end()};
}

double processor_seconds_of_thread() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Processor time that predicting takes beside a run that decodes: one token at a time, on one
// thread.
double microseconds_per_token(PathNetwork& network, const TracedSequences& judged) {
  constexpr int64_t kMostTokens = 4096;
  int64_t count = 0;
  const double begin = processor_seconds_of_thread();
  for (const TracedSequence& sequence : judged.sequences) {
    if (count >= kMostTokens) break;
    PathState state;
    for (const TokenId& token : sequence.tokens) network.extend(state, std::span(&token, 1));
    count += std::ssize(sequence.tokens);
  }
  return 1e6 * (processor_seconds_of_thread() - begin) / static_cast<double>(count);
}

Judgement judged(PathNetwork& network, const TracedSequences& learnt,
                 const TracedSequences& sequences, ThreadPool& pool) {
  return {.sequences = {},
          .tokens = sequences.tokens(),
          .path = path_recall(network, sequences, &pool),
          .popularity = popularity_recall(learnt, sequences),
          .correlation = correlation_recall(learnt, sequences)};
}

std::string checkpoint_of(const TrainOptions& options) { return options.output + ".checkpoint"; }

bool train(PathTraining& training, const TrainOptions& options) {
  const std::string checkpoint = checkpoint_of(options);
  if (options.resume) training.load_checkpoint(checkpoint);
  let_signals_ask();
  StatusLine status("training", "steps");
  return training.run(
      {.progress =
           [&](const PathTrainingProgress& progress) {
             status.update(
                 static_cast<uint64_t>(progress.steps), static_cast<uint64_t>(progress.total_steps),
                 fmt::format("loss {:.4f}  best recall {:.1f} %  {:.0f} s left", progress.loss,
                             100 * progress.best_recall, progress.seconds_left));
           },
       .stop = [] { return signal_asking_to_stop() != 0; },
       .checkpoint = checkpoint});
}

Json as_json(const RoutingTraceShape& shape, const TrainOptions& options,
             const TrainReport& report) {
  Json results = Json::array();
  for (const Judgement& one : report.judgements) {
    Json layers = Json::array();
    for (size_t i = 0; i < shape.layers.size(); ++i) {
      layers.push_back({{"layer", shape.layers[i].layer.value},
                        {"experts", shape.layers[i].experts},
                        {"top_k", shape.layers[i].top_k},
                        {"path", one.path.by_layer[i]},
                        {"popularity", one.popularity.by_layer[i]},
                        {"correlation", one.correlation.by_layer[i]}});
    }
    results.push_back({{"sequences", one.sequences},
                       {"tokens", one.tokens},
                       {"path", one.path.all},
                       {"popularity", one.popularity.all},
                       {"correlation", one.correlation.all},
                       {"layers", std::move(layers)}});
  }
  return {{"file", options.output},
          {"parameters", report.parameters},
          {"training_tokens", report.training_tokens},
          {"seconds", report.seconds},
          {"microseconds_per_token", report.microseconds_per_token},
          {"results", std::move(results)}};
}

std::string as_markdown(const RoutingTraceShape& shape, const TrainOptions& options,
                        const TrainReport& report) {
  std::string text = fmt::format(
      "{}: {} weights, trained on {} tokens in {:.0f} s; predicting takes {:.0f} us a token\n",
      options.output, report.parameters, report.training_tokens, report.seconds,
      report.microseconds_per_token);
  const auto row = [&](const std::string& name, double path, double popularity,
                       double correlation) {
    text += fmt::format("| {} | {:.1f} | {:.1f} | {:.1f} |\n", name, 100 * path, 100 * popularity,
                        100 * correlation);
  };
  for (const Judgement& one : report.judgements) {
    text += fmt::format(
        "\nExperts that tokens chose among those predicted, in %, {} ({} tokens):\n\n"
        "| layer | path network | popularity | correlation |\n|---|---|---|---|\n",
        one.sequences, one.tokens);
    for (size_t i = 0; i < shape.layers.size(); ++i) {
      row(std::to_string(shape.layers[i].layer.value), one.path.by_layer[i],
          one.popularity.by_layer[i], one.correlation.by_layer[i]);
    }
    row("all", one.path.all, one.popularity.all, one.correlation.all);
  }
  return text;
}

int train_predictor_command(const TrainOptions& options) {
  const SplitSequences data =
      hold_out(read_traces(paths_of(options.traces)), options.held_out_percent / 100);
  std::optional<TracedSequences> test;
  if (!options.test_traces.empty()) test = read_traces(paths_of(options.test_traces));
  if (test && test->shape.layers != data.training.shape.layers) {
    fail(ErrorKind::usage,
         "--test: expected traces of the model that is trained for ({}), found others ({})",
         in_quotes(data.training.shape.model), in_quotes(test->shape.model));
  }
  ThreadPool pool(options.threads > 0 ? static_cast<int>(options.threads) : usable_cpus());
  const double begin = steady_seconds();
  PathTraining training(data, options.training, &pool);
  const bool finished = train(training, options);
  const double seconds = steady_seconds() - begin;
  PathNetwork& network = training.best();
  network.save(options.output);
  if (finished) std::filesystem::remove(checkpoint_of(options));

  TrainReport report{.parameters = network.shape().parameters(),
                     .training_tokens = data.training.tokens(),
                     .seconds = seconds,
                     .microseconds_per_token = microseconds_per_token(network, data.held_out),
                     .judgements = {judged(network, data.training, data.held_out, pool)}};
  report.judgements[0].sequences = "in sequences held out";
  if (test) {
    report.judgements.push_back(judged(network, data.training, *test, pool));
    report.judgements[1].sequences = "in the traces of --test";
  }
  const RoutingTraceShape& shape = data.training.shape;
  write_out(
      options.json
          ? as_json(shape, options, report).dump(2, ' ', false, Json::error_handler_t::replace) +
                "\n"
          : as_markdown(shape, options, report));
  if (finished) return 0;
  write_err(one_line(fmt::format("stopped after {} of {} steps; the best network so far was kept, "
                                 "--resume goes on from {}.checkpoint",
                                 training.steps(), training.total_steps(), options.output)) +
            "\n");
  return 128 + signal_asking_to_stop();
}

void add_training_flags(CLI::App& command, const std::shared_ptr<TrainOptions>& options) {
  add_integer(command, "--epochs", {1, 10000}, "Read the training sequences N times (default 10)",
              [options](int64_t value) { options->training.epochs = value; });
  add_integer(command, "--batch", {1, 4096}, "Chunks of 32 tokens a step (default 16)",
              [options](int64_t value) { options->training.batch_chunks = value; });
  add_integer(command, "--width", {4, 4096},
              "Width of the network, a multiple of 4 (default 64): wider learns more and takes "
              "longer",
              [options](int64_t value) {
                if (value % 4 != 0) {
                  fail(ErrorKind::usage, "--width: expected a multiple of 4, found {}", value);
                }
                options->training.width = value;
              });
  add_number(command, "--learning-rate", {1e-6, 1.0}, "Highest learning rate (default 0.01)",
             [options](double value) { options->training.learning_rate = value; });
  add_number(command, "--held-out", {0.1, 90.0},
             "Share of the sequences, in percent, that judges the network and is not trained with "
             "(default 10)",
             [options](double value) { options->held_out_percent = value; });
  add_integer(command, "--seed", {0, INT64_MAX}, "Seed of the first weights (default 1)",
              [options](int64_t value) { options->training.seed = static_cast<uint64_t>(value); });
  add_integer(command, "--threads", {1, 1024}, "Threads (default: all processors allowed)",
              [options](int64_t value) { options->threads = value; });
}

}  // namespace

void add_train_predictor_command(CLI::App& app, Action& action) {
  auto options = std::make_shared<TrainOptions>();
  CLI::App* command = app.add_subcommand(
      "train-predictor",
      "Train a network that predicts from tokens which experts they will go to (ExpertFlow)");
  command
      ->add_option("TRACE", options->traces,
                   "Routing traces of one model, as `klotski trace` writes them")
      ->required();
  add_output_file(*command, "-o,--output", "FILE",
                  "File for the predictor (its format: docs/path-predictor.md)", options->output)
      ->required();
  command
      ->add_option("--test", options->test_traces,
                   "Routing trace of other text, to judge the predictor with; may be repeated")
      ->type_name("TRACE")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  add_training_flags(*command, options);
  command->add_flag("--resume", options->resume,
                    "Go on from FILE.checkpoint, which an interrupted training leaves");
  command->add_flag("--json", options->json, "Print the results as JSON instead of Markdown");
  command->callback(
      [options, &action] { action = [options] { return train_predictor_command(*options); }; });
}

}  // namespace klotski
