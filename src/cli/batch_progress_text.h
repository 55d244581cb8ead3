#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "batch/progress_estimate.h"

namespace klotski {

// How far a job has come, earlier runs of it included where rows are counted.
struct ProgressFigures {
  int64_t rows = 0;
  int64_t rows_done = 0;
  int64_t rows_failed = 0;
  RunState run;
  double seconds = 0.0;  // since this run began
  double generated_per_second = 0.0;
  double prompt_per_second = 0.0;
  std::optional<double> experts_found{};  // share of the experts asked for that memory had
};

// The figures in one line of at most `width` columns: the less important ones are left out.
std::string progress_line(const ProgressFigures& figures, size_t width);

// The figures as a JSON object in one line with its end; `event` is "progress", "done" or
// "interrupted".
std::string progress_json(const ProgressFigures& figures, const std::string& event);

// A time in at most two units: "45 s", "3 min 20 s", "5 h 2 min", "3 d 4 h".
std::string time_in_words(double seconds);

}  // namespace klotski
