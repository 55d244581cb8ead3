#include "batch/progress_estimate.h"

#include <algorithm>

namespace klotski {

namespace {

constexpr double kRowsOfTheGuess = 16.0;  // the usual row counts as much as this many finished rows
constexpr double kShareOfThePlan = 0.05;  // of the planned time, as if it had been measured

// The mean of a guess and of measured rows.
double mean_with_guess(double guess, double sum, double rows) {
  return (guess * kRowsOfTheGuess + sum) / (kRowsOfTheGuess + rows);
}

}  // namespace

ProgressEstimate::ProgressEstimate(const ExpectedWork& work) : work_(work) {
  const auto rows = static_cast<double>(std::max<int64_t>(1, work.rows));
  const double prompt = rows * static_cast<double>(work.usual.prompt_tokens);
  const double generated = rows * static_cast<double>(work.usual.generated_tokens);
  if (work.prefill_seconds + work.decode_seconds <= 0.0) return;
  prompt_cost_ = work.prefill_seconds / std::max(1.0, prompt);
  generated_cost_ = work.decode_seconds / std::max(1.0, generated);
}

RunState ProgressEstimate::after(double seconds, const BatchCounts& counts,
                                 int64_t prompt_tokens) const {
  const bool planned = work_.prefill_seconds + work_.decode_seconds > 0.0;
  const auto rows = static_cast<double>(std::max<int64_t>(0, work_.rows - counts.rows_failed));
  const double prompt_mean = mean_with_guess(static_cast<double>(work_.usual.prompt_tokens),
                                             static_cast<double>(counts.prompt_tokens),
                                             static_cast<double>(counts.rows_begun));
  const double generated_mean = mean_with_guess(static_cast<double>(work_.usual.generated_tokens),
                                                static_cast<double>(counts.generated_by_done),
                                                static_cast<double>(counts.rows_ok));
  const auto prompt_done = static_cast<double>(prompt_tokens);
  const auto generated_done = static_cast<double>(counts.generated_tokens);
  const bool all_done = counts.rows_done() >= work_.rows;
  // Rows that are not done will generate at least one token more.
  const double prompt = all_done ? prompt_done : std::max(prompt_done, prompt_mean * rows);
  const auto left = static_cast<double>(work_.rows - counts.rows_done());
  const double generated =
      all_done ? generated_done : std::max(generated_done + left, generated_mean * rows);
  const double done = prompt_cost_ * prompt_done + generated_cost_ * generated_done;
  const double total = prompt_cost_ * prompt + generated_cost_ * generated;

  RunState state;
  state.tokens_done = static_cast<int64_t>(prompt_done + generated_done);
  state.tokens_expected = static_cast<int64_t>(prompt + generated);
  state.share = all_done ? 1.0 : total > 0.0 ? done / total : 0.0;
  const double guess = planned ? kShareOfThePlan * total : 0.0;
  if (done + guess > 0.0) {
    state.seconds_left = (total - done) * (seconds + guess) / (done + guess);
  }
  return state;
}

}  // namespace klotski
