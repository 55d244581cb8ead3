#pragma once

// The expected and the measured times of a run: pure data, a line of JSON for each run.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace klotski {

struct LaneFigures {
  std::string lane;
  double busy_seconds = 0;
  uint64_t bytes = 0;  // moved

  bool operator==(const LaneFigures&) const = default;
};

// Figures of a whole run.
struct RunFigures {
  double seconds = 0;
  double prefill_seconds = 0;  // passes with prompts in them
  double decode_seconds = 0;   // passes without prompts
  int64_t prompt_tokens = 0;
  int64_t generated_tokens = 0;
  std::vector<LaneFigures> lanes;  // lanes that did something

  double tokens_per_second() const;  // generated, over all; 0 where no time passed
  // Figures of a lane; zeros where it did nothing.
  LaneFigures of_lane(std::string_view name) const;
  bool operator==(const RunFigures&) const = default;
};

struct RunRecord {
  std::string when;     // UTC, as 2030-01-31T23:59:59Z
  std::string command;  // "batch", "bench"
  std::string model;    // the folder's last name
  std::string machine;  // processor, kernels, threads in a few words
  std::string strategy;
  int64_t micro_batch = 0;  // sequences
  int64_t micro_batches = 0;
  uint64_t ram_bytes = 0;  // the run's limit
  int64_t sequences = 0;
  RunFigures planned;
  RunFigures measured;

  bool operator==(const RunRecord&) const = default;
};

// One line of JSON, without its end.
std::string write_run_record(const RunRecord& record);

// A record from its line; nothing where the line is not a whole and sane record of today's form.
std::optional<RunRecord> read_run_record(std::string_view line);

// measured / planned; nothing where nothing was planned or measured.
std::optional<double> measured_over_planned(double planned, double measured);

// A table: time, tokens/s, prefill, decode, then busy time and bytes of each lane that either has;
// planned, measured, measured / planned.
std::string planned_beside_measured(const RunFigures& planned, const RunFigures& measured);

}  // namespace klotski
