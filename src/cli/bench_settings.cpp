#include "cli/bench_settings.h"

#include <fmt/format.h>

#include <filesystem>
#include <utility>

#include "cli/session_output.h"
#include "session/model_tokenizer.h"

namespace klotski {

namespace {

struct StrategyRow {
  Strategy strategy;
  bool cpu_attention;
};

// The strategies of the paper; then, on a device, the ways in which the CPU computes experts,
// attention, or both.
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

std::vector<Setting> strategy_settings(const BenchOptions& options, bool on_device) {
  const RunLimits& given = options.flags.options.limits;
  std::vector<Setting> settings;
  for (const StrategyRow& row : strategy_rows(on_device)) {
    if (options.compare && on_device && !properties_of(row.strategy).competes_on_device) continue;
    RunLimits limits = given;
    limits.strategy = row.strategy;
    limits.cpu_attention = row.cpu_attention;
    if (options.ablation) {
      limits.micro_batch = given.micro_batch.value_or(kBenchBatch);
      limits.micro_batches = given.micro_batches.value_or(kBenchBatch);
    }
    settings.push_back({describe_strategy(row.strategy, row.cpu_attention), limits, {}});
  }
  if (options.compare) settings.push_back({"auto", given, {}});
  return settings;
}

std::vector<Setting> group_settings(const BenchOptions& options) {
  const RunLimits& given = options.flags.options.limits;
  const bool over_n = options.sweep != "batch";
  const bool over_batch = options.sweep != "n";
  const std::vector<int64_t> given_n = {given.micro_batches.value_or(kBenchBatch)};
  const std::vector<int64_t> given_batch = {given.micro_batch.value_or(kBenchBatch)};
  std::vector<Setting> settings;
  for (const int64_t batch : over_batch ? options.batch_values : given_batch) {
    for (const int64_t n : over_n ? options.n_values : given_n) {
      RunLimits limits = given;
      limits.micro_batches = n;
      limits.micro_batch = batch;
      limits.strategy = given.strategy.value_or(Strategy::klotski);
      settings.push_back({fmt::format("n={} batch={}", n, batch), limits, {}});
    }
  }
  return settings;
}

// "out.svg" with the label "klotski" becomes "out-klotski.svg".
std::string labelled(const std::string& path, const std::string& label) {
  if (path.empty()) return path;
  const std::filesystem::path given(path);
  std::filesystem::path name = given.stem();
  name += "-" + label;
  name += given.extension();
  return given.parent_path() / name;
}

}  // namespace

std::vector<Setting> settings_of(const BenchOptions& options, bool on_device) {
  if (options.several_strategies()) return strategy_settings(options, on_device);
  if (!options.sweep.empty()) return group_settings(options);
  const RunLimits& given = options.flags.options.limits;
  std::string name = given.strategy ? std::string(strategy_name(*given.strategy)) : "auto";
  return {{std::move(name), given, {}}};
}

int64_t sequences_of(const BenchOptions& options, const RunLimits& limits) {
  return options.sequences.value_or(limits.micro_batch.value_or(kBenchBatch) *
                                    limits.micro_batches.value_or(kBenchBatch));
}

Tokenizer text_tokenizer(const BenchOptions& options, const Session& session) {
  return load_tokenizer(options.tokenizer.empty() ? session.model().folder
                                                  : std::filesystem::path(options.tokenizer));
}

void write_setting_files(const BenchOptions& options, const Setting& setting, Session& session) {
  SessionFlags files = options.flags;
  if (options.several_strategies()) {
    files.trace_file = labelled(files.trace_file, setting.name);
    files.timeline_file = labelled(files.timeline_file, setting.name);
  }
  write_session_files(files, session);
}

}  // namespace klotski
