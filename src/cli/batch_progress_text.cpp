#include "cli/batch_progress_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/json.h"

namespace klotski {

namespace {

// Rounded so that the text is short and its last digit means something.
OrderedJson rounded(double value) { return std::round(value * 1000.0) / 1000.0; }

}  // namespace

std::string time_in_words(double seconds) {
  constexpr double kMostSeconds = 1e9;  // 30 years
  const auto whole = static_cast<int64_t>(std::lround(std::clamp(seconds, 0.0, kMostSeconds)));
  const int64_t minutes = whole / 60;
  const int64_t hours = minutes / 60;
  if (whole < 60) return fmt::format("{} s", whole);
  if (minutes < 60) return fmt::format("{} min {} s", minutes, whole % 60);
  if (hours < 24) return fmt::format("{} h {} min", hours, minutes % 60);
  return fmt::format("{} d {} h", hours / 24, hours % 24);
}

std::string progress_line(const ProgressFigures& figures, size_t width) {
  // A run that is not complete never shows as 100 %.
  const int percent = static_cast<int>(100.0 * std::clamp(figures.run.share, 0.0, 1.0));
  std::vector<std::string> parts = {fmt::format("batch {:3} %", percent)};
  if (figures.run.seconds_left) {
    parts.push_back(time_in_words(*figures.run.seconds_left) + " left");
  }
  parts.push_back(fmt::format("{} of {} rows", figures.rows_done, figures.rows));
  parts.push_back(fmt::format("{:.1f} tokens/s", figures.generated_per_second));
  parts.push_back(
      fmt::format("{} of about {} tokens", figures.run.tokens_done, figures.run.tokens_expected));
  if (figures.rows_failed > 0) parts.push_back(fmt::format("{} failed", figures.rows_failed));
  parts.push_back(fmt::format("{:.1f} prompt tokens/s", figures.prompt_per_second));
  if (figures.experts_found) {
    parts.push_back(fmt::format("{:.1f} % of experts found", 100.0 * *figures.experts_found));
  }
  std::string line;
  for (const std::string& part : parts) {
    const std::string longer = line.empty() ? part : line + ", " + part;
    if (longer.size() <= width) line = longer;
  }
  return line;
}

std::string progress_json(const ProgressFigures& figures, const std::string& event) {
  const RunState& run = figures.run;
  const OrderedJson document = {
      {"event", event},
      {"rows", figures.rows},
      {"rows_done", figures.rows_done},
      {"rows_failed", figures.rows_failed},
      {"tokens_done", run.tokens_done},
      {"tokens_expected", run.tokens_expected},
      {"share", rounded(run.share)},
      {"seconds", rounded(figures.seconds)},
      {"seconds_left", run.seconds_left ? rounded(*run.seconds_left) : OrderedJson(nullptr)},
      {"generated_tokens_per_second", rounded(figures.generated_per_second)},
      {"prompt_tokens_per_second", rounded(figures.prompt_per_second)}};
  return document.dump() + "\n";
}

}  // namespace klotski
