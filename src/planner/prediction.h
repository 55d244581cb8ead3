#pragma once

#include "planner/planned_passes.h"

namespace klotski {

// The predicted times of a run of the work.
struct Prediction {
  double prefill_seconds = 0.0;  // passes that have prompts in them
  double decode_seconds = 0.0;   // passes without prompts
  double prompt_tokens = 0.0;
  double generated_tokens = 0.0;
  double decoded_tokens = 0.0;  // in passes without prompts
  int64_t passes = 0;
  TimelineTotals totals;  // totals of all passes

  double seconds() const { return prefill_seconds + decode_seconds; }
  // Multiplies all times.
  void slow_down(double factor) {
    prefill_seconds *= factor;
    decode_seconds *= factor;
    totals *= factor;
  }
  double tokens_per_second() const { return generated_tokens / seconds(); }
  double prefill_rate() const { return prompt_tokens / prefill_seconds; }
  double decode_rate() const { return decode_seconds > 0 ? decoded_tokens / decode_seconds : 0.0; }
};

// How closely a run is looked at.
struct PredictionDetail {
  int64_t most_groups = 8;       // groups of sequences that are simulated; later ones are taken to
                                 // be like them
  int64_t averaged_layers = 32;  // layers of all passes of one shape that are simulated, at least
  // Share of the passes until what memory holds has settled that are simulated.
  double settling = 1.0;
  // Numbers of rows that are told apart between a number and its double: passes that hardly differ
  // are simulated once.
  double row_steps = 12.0;
};

// Goes through the passes of a run as the engine forms them, and adds up their simulated times: the
// first pass with nothing in memory unless the work says otherwise, later ones with the weights
// that earlier ones left there. After the detail's number of groups each group is taken to be like
// the others, but for the last, which may be smaller: it brings as many weights for fewer tokens.
Prediction predict(const PredictionInputs& with, const Policy& policy, const PlannedWork& work,
                   const PredictionDetail& detail = {});

}  // namespace klotski
