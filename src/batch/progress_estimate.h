#pragma once

#include <cstdint>
#include <optional>

#include "batch/batch_job.h"
#include "batch/usual_row.h"

namespace klotski {

// The work of a run as it was planned.
struct ExpectedWork {
  int64_t rows = 0;  // rows that have no result yet
  UsualRow usual;
  double prefill_seconds = 0.0;  // planned for all rows; both 0: nothing was planned
  double decode_seconds = 0.0;
};

// How far a run has come.
struct RunState {
  int64_t tokens_done = 0;      // prompts and generated, those of running rows too
  int64_t tokens_expected = 0;  // an estimate until all rows are done
  double share = 0.0;           // of the time, by tokens and their planned costs
  std::optional<double> seconds_left{};
};

// Estimates by tokens: rows that run together end together, so that finished rows say little. A
// token of a prompt and a generated one cost what the plan says; how long the run then takes is
// corrected by the time that it took so far.
class ProgressEstimate {
 public:
  explicit ProgressEstimate(const ExpectedWork& work);

  // `prompt_tokens` are those computed so far, also of prompts that are not complete.
  RunState after(double seconds, const BatchCounts& counts, int64_t prompt_tokens) const;

 private:
  ExpectedWork work_;
  double prompt_cost_ = 1.0;  // seconds a token where something was planned
  double generated_cost_ = 1.0;
};

}  // namespace klotski
