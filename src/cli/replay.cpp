#include "experts/replay.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/bytes.h"
#include "base/error.h"
#include "base/json.h"
#include "cli/command.h"
#include "experts/oracle.h"

namespace klotski {

namespace {

constexpr uint64_t kAssumedExpertBytes = 1 * kMiB;
constexpr double kGigabyte = 1e9;
constexpr int64_t kMostSlots = 1 << 24;
constexpr std::string_view kOracle = "belady";
constexpr std::string_view kNoPredictor = "none";

struct ReplayOptions {
  std::vector<std::string> traces;
  std::vector<std::string> learn_from;
  std::vector<int64_t> experts_in_memory;
  std::optional<uint64_t> expert_bytes;
  double link_gigabytes = 25.0;  // a second
  std::string history;
  std::string network;
  int64_t capacity = kActivationCapacity;
  bool json = false;
};

struct ReplayResult {
  std::string_view rule;
  std::string_view predictor;
  int64_t experts_in_memory = 0;
  CacheCounters counters;
};

PredictorChoice kept_state(const ReplayOptions& options, const RoutingTraceShape& shape) {
  PredictorChoice kept;
  kept.history = std::make_shared<ActivationHistory>(
      ActivationHistory::load_if_there(options.history, shape, options.capacity));
  if (!options.network.empty()) {
    kept.network = std::make_shared<PathNetwork>(PathNetwork::load(options.network, shape));
  }
  return kept;
}

// Plays the trace through a cache of every size for every rule, with one predictor or with none.
class Replays {
 public:
  explicit Replays(const ReplayOptions& options)
      : options_(options),
        trace_(options.traces),
        kept_(kept_state(options, trace_.shape())),
        predictors_(trace_.shape(), kept_) {
    if (!options.learn_from.empty()) learn_from_.emplace_back(options.learn_from);
    for (const ReplayTrace& trace : learn_from_) {
      if (trace.shape().layers == trace_.shape().layers) continue;
      fail(ErrorKind::usage,
           "--learn: expected traces of the routed layers that are replayed, found others");
    }
  }

  const ReplayTrace& trace() const { return trace_; }

  std::vector<ReplayResult> run() {
    play(kNoPredictor, nullptr);
    for (const std::string_view name : predictors_.names()) {
      const auto predictor = predictors_.make(name, learn_from_);
      play(name, predictor.get());
    }
    return std::move(results_);
  }

  void save_history() const {
    if (!options_.history.empty()) kept_.history->save(options_.history);
  }

 private:
  // Rules that do not ask predictors are played once, without one; so is the oracle.
  void play(std::string_view predictor_name, ExpertPredictor* predictor) {
    std::vector<std::unique_ptr<ExpertCache>> caches;
    std::vector<ReplayResult> results;
    const auto layers = int64_t{trace_.shape().layers.back().layer.value} + 1;
    const auto add = [&](std::string_view name, int64_t slots, std::unique_ptr<EvictionRule> rule) {
      if (predictor && !rule->uses_expectations()) return;
      // More slots than experts stay empty.
      caches.push_back(std::make_unique<ExpertCache>(std::min(slots, trace_.shape().experts()),
                                                     std::move(rule)));
      results.push_back({name, predictor_name, slots, {}});
    };
    for (const int64_t slots : options_.experts_in_memory) {
      for (const std::string_view name : eviction_rule_names()) {
        add(name, slots, make_eviction_rule(name, layers));
      }
      if (!predictor) add(kOracle, slots, make_oracle_rule(trace_.requests()));
    }
    replay(trace_, predictor, caches);
    for (size_t i = 0; i < results.size(); ++i) {
      results[i].counters = caches[i]->counters();
      results_.push_back(results[i]);
    }
  }

  const ReplayOptions& options_;
  ReplayTrace trace_;
  std::vector<ReplayTrace> learn_from_;
  PredictorChoice kept_;
  ReplayPredictors predictors_;
  std::vector<ReplayResult> results_;
};

// The part of the distance between lru and the oracle that a result closes, by cache size; none
// where the two are the same.
class Closed {
 public:
  explicit Closed(const std::vector<ReplayResult>& results) {
    for (const ReplayResult& result : results) {
      if (result.rule == "lru") lru_[result.experts_in_memory] = result.counters.hits;
      if (result.rule == kOracle) oracle_[result.experts_in_memory] = result.counters.hits;
    }
  }
  std::optional<double> by(const ReplayResult& result) const {
    const int64_t lru = lru_.at(result.experts_in_memory);
    const int64_t distance = oracle_.at(result.experts_in_memory) - lru;
    if (distance == 0) return std::nullopt;
    return static_cast<double>(result.counters.hits - lru) / static_cast<double>(distance);
  }

 private:
  std::map<int64_t, int64_t> lru_;  // hits by experts in memory
  std::map<int64_t, int64_t> oracle_;
};

uint64_t loaded_bytes(const ReplayOptions& options, const ReplayResult& result) {
  uint64_t bytes = 0;
  if (!multiply_checked(static_cast<uint64_t>(result.counters.misses),
                        options.expert_bytes.value_or(kAssumedExpertBytes), &bytes)) {
    fail(ErrorKind::usage, "--expert-bytes: {} experts of that size are more bytes than counted",
         result.counters.misses);
  }
  return bytes;
}

double stall_seconds(const ReplayOptions& options, const ReplayResult& result) {
  return static_cast<double>(loaded_bytes(options, result)) / (options.link_gigabytes * kGigabyte);
}

std::string as_json(const ReplayOptions& options, const ReplayTrace& trace,
                    const std::vector<ReplayResult>& results) {
  const Closed closed(results);
  Json list = Json::array();
  for (const ReplayResult& result : results) {
    const std::optional<double> part = closed.by(result);
    list.push_back({{"rule", result.rule},
                    {"predictor", result.predictor},
                    {"experts_in_memory", result.experts_in_memory},
                    {"requests", result.counters.requests()},
                    {"hits", result.counters.hits},
                    {"hit_share", result.counters.hit_share()},
                    {"distance_closed", part ? Json(*part) : Json(nullptr)},
                    {"bytes", loaded_bytes(options, result)},
                    {"stall_seconds", stall_seconds(options, result)}});
  }
  const Json document = {{"model", trace.shape().model},
                         {"tokens", trace.tokens()},
                         {"routed_layers", trace.shape().layers.size()},
                         {"experts", trace.shape().experts()},
                         {"expert_bytes", options.expert_bytes.value_or(kAssumedExpertBytes)},
                         {"expert_bytes_assumed", !options.expert_bytes},
                         {"link_bytes_per_second", options.link_gigabytes * kGigabyte},
                         {"results", std::move(list)}};
  return document.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string as_table(const ReplayOptions& options, const ReplayTrace& trace,
                     const std::vector<ReplayResult>& results) {
  const Closed closed(results);
  std::string text = fmt::format(
      "{} tokens, {} routed layers, {} experts of {}{}, a link of {:g} GB/s\n"
      "{:>8} {:<16} {:<16} {:>7} {:>7} {:>12} {:>9}\n",
      trace.tokens(), trace.shape().layers.size(), trace.shape().experts(),
      format_bytes(options.expert_bytes.value_or(kAssumedExpertBytes)),
      options.expert_bytes ? "" : " (assumed; --expert-bytes says)", options.link_gigabytes,
      "experts", "rule", "predictor", "hits %", "closed", "loaded", "stalled s");
  for (const ReplayResult& result : results) {
    const std::optional<double> part = closed.by(result);
    text += fmt::format(
        "{:>8} {:<16} {:<16} {:>7.2f} {:>7} {:>12} {:>9.3f}\n", result.experts_in_memory,
        result.rule, result.predictor, 100.0 * result.counters.hit_share(),
        part ? fmt::format("{:.1f}%", 100.0 * *part) : "-",
        format_bytes(loaded_bytes(options, result)), stall_seconds(options, result));
  }
  return text;
}

int replay_command(const ReplayOptions& options) {
  Replays replays(options);
  const std::vector<ReplayResult> results = replays.run();
  write_out(options.json ? as_json(options, replays.trace(), results)
                         : as_table(options, replays.trace(), results));
  replays.save_history();
  return 0;
}

}  // namespace

void add_replay_command(CLI::App& app, Action& action) {
  auto options = std::make_shared<ReplayOptions>();
  CLI::App* command = app.add_subcommand(
      "replay",
      "Play routing traces through expert caches: every rule and predictor, and an oracle");
  command->add_option("TRACE", options->traces, "Routing traces of one model, in this order")
      ->required()
      ->type_name("FILE");
  add_integers(*command, "--experts-in-memory", {1, kMostSlots},
               "Experts that a cache holds, over all layers; several with commas between",
               options->experts_in_memory)
      ->required();
  command
      ->add_option("--learn", options->learn_from,
                   "Trace that predictors learn from first, several times for several; the caches "
                   "begin empty")
      ->allow_extra_args(false)
      ->type_name("FILE");
  add_size(*command, "--expert-bytes", "Bytes of an expert (default: 1MiB is assumed)",
           [options](uint64_t bytes) { options->expert_bytes = bytes; });
  add_number(*command, "--link-gbps", {1e-6, 1e6},
             "Gigabytes a second over which a missing expert comes (default 25)",
             [options](double value) { options->link_gigabytes = value; });
  add_output_file(*command, "--eamc", "FILE",
                  "Activation matrices of past requests (EAMC): read where the file exists, kept "
                  "there at the end",
                  options->history);
  command
      ->add_option("--predictor-file", options->network,
                   "Network of the predictor path, written by klotski train-predictor; without it "
                   "path is left out")
      ->type_name("FILE");
  add_integer(*command, "--eamc-capacity", {1, 1 << 16},
              "Requests whose activation matrices are kept (default 120)",
              [options](int64_t value) { options->capacity = value; });
  command->add_flag("--json", options->json, "Print the results as JSON");
  command->callback(
      [options, &action] { action = [options] { return replay_command(*options); }; });
}

}  // namespace klotski
