#pragma once

#include "planner/planned_passes.h"

namespace klotski {

// What a run of the work should take.
struct Prediction {
  double prefill_seconds = 0.0;  // of passes that have prompts in them
  double decode_seconds = 0.0;   // of the others
  double prompt_tokens = 0.0;
  double generated_tokens = 0.0;
  double decoded_tokens = 0.0;  // in passes without prompts
  int64_t passes = 0;
  TimelineTotals totals;  // of all passes

  double seconds() const { return prefill_seconds + decode_seconds; }
  // The same work in so many times the time.
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
  int64_t most_groups = 8;       // of sequences; after these one is taken to be like the other
  int64_t averaged_layers = 32;  // of all passes of one shape whose mean is taken
  // Between a number of rows and its double so many are told apart: passes that hardly differ are
  // simulated once.
  double row_steps = 12.0;
};

// Goes through the passes of a run as the engine forms them, and adds up what a simulation says of
// each: the first one with nothing in memory, the others with what those before left there.
// After the detail's number of groups one is taken to be like the other, but for the last, which
// may be smaller: it brings as many weights for fewer tokens.
Prediction predict(const Machinery& with, const Policy& policy, const PlannedWork& work,
                   const PredictionDetail& detail = {});

}  // namespace klotski
