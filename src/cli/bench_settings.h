#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "cli/model_flags.h"
#include "cli/session_flags.h"
#include "session/measure.h"
#include "session/serving.h"

namespace klotski {

// Sequences of a micro-batch, and micro-batches of a group, where the flags name no number and the
// planner is not to choose one.
inline constexpr int64_t kBenchBatch = 4;

inline constexpr uint64_t kMaxTextBytes = 64 * kMiB;  // of files with texts and traces

// Options of `klotski bench`.
struct BenchOptions {
  ModelFlags model;
  SessionFlags flags;
  std::string text;
  std::string tokenizer;  // folder or file of another than the model's; empty: the model's
  bool follow_text = false;
  std::vector<std::string> routing;  // files of recorded routing; empty: gates choose
  bool ablation = false;
  bool compare = false;
  std::string sweep;
  std::vector<int64_t> n_values = {1, 2, 4, 8};
  std::vector<int64_t> batch_values = {4, 8, 16};
  std::optional<int64_t> sequences;
  int64_t prompt_tokens = 32;
  int64_t generate = 8;
  int64_t repeat = 1;
  std::string arrivals;        // a trace to replay; empty: all prompts are there at once
  std::optional<double> rate;  // requests a second; none: as recorded
  double length_scale = 1.0;
  ServingTarget target;
  bool json = false;
  std::string json_file;
  std::string markdown_file;

  bool several_strategies() const { return ablation || compare; }
};

// One setting to measure: several runs of it, of which the median by time counts.
struct Setting {
  std::string name;
  RunLimits limits;
  std::vector<Measurement> runs;

  const Measurement& median() const { return runs[runs.size() / 2]; }
};

// The settings that the options ask for, without runs; `on_device`: a GPU computes.
std::vector<Setting> settings_of(const BenchOptions& options, bool on_device);

// Sequences that a setting runs.
int64_t sequences_of(const BenchOptions& options, const RunLimits& limits);

// The tokenizer of the text that prompts are cut from: that of the options, else the model's.
Tokenizer text_tokenizer(const BenchOptions& options, const Session& session);

// Writes the files that the options ask for, after a run under the setting; with several strategies
// the setting's name is part of theirs.
void write_setting_files(const BenchOptions& options, const Setting& setting, Session& session);

}  // namespace klotski
