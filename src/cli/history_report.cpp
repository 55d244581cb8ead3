#include "cli/history_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"

namespace klotski {

namespace {

constexpr int64_t kMostCompared = 20;
constexpr int64_t kLeastForAdvice = 5;
constexpr double kTolerance = 0.1;

bool is_within(double ratio) {
  constexpr double kRounding = 1e-9;
  return std::abs(ratio - 1.0) <= kTolerance + kRounding;
}

double median_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

std::optional<double> rate_ratio(const RunRecord& run) {
  return measured_over_planned(run.planned.tokens_per_second(), run.measured.tokens_per_second());
}

// Medians of the lanes, in the order in which runs name them.
std::vector<LaneRatio> lanes_of(const std::vector<const RunRecord*>& runs) {
  std::vector<std::pair<std::string, std::vector<double>>> ratios;
  for (const RunRecord* run : runs) {
    for (const LaneFigures& lane : run->planned.lanes) {
      const auto ratio =
          measured_over_planned(lane.busy_seconds, run->measured.of_lane(lane.lane).busy_seconds);
      if (!ratio) continue;
      auto found = std::find_if(ratios.begin(), ratios.end(),
                                [&](const auto& entry) { return entry.first == lane.lane; });
      if (found == ratios.end()) found = ratios.insert(found, {lane.lane, {}});
      found->second.push_back(*ratio);
    }
  }
  std::vector<LaneRatio> lanes;
  for (auto& [name, values] : ratios) lanes.push_back({name, median_of(std::move(values))});
  return lanes;
}

}  // namespace

HistorySummary summarize(std::string_view machine, const std::vector<RunRecord>& runs) {
  HistorySummary history;
  history.machine = machine;
  history.runs = std::ssize(runs);
  std::vector<const RunRecord*> newest;
  std::vector<double> ratios;
  for (auto run = runs.rbegin(); run != runs.rend() && std::ssize(ratios) < kMostCompared; ++run) {
    const std::optional<double> ratio = rate_ratio(*run);
    if (!ratio) continue;
    newest.push_back(&*run);
    ratios.push_back(*ratio);
  }
  if (ratios.empty()) return history;
  history.compared = std::ssize(ratios);
  history.median = median_of(ratios);
  history.least = *std::min_element(ratios.begin(), ratios.end());
  history.most = *std::max_element(ratios.begin(), ratios.end());
  history.share_within =
      static_cast<double>(std::count_if(ratios.begin(), ratios.end(), is_within)) /
      static_cast<double>(ratios.size());
  history.lanes = lanes_of(newest);
  return history;
}

std::string history_text(const HistorySummary& history) {
  std::string text = fmt::format("{:<14}{} {} of this machine\n", "history", history.runs,
                                 history.runs == 1 ? "run" : "runs");
  if (history.compared == 0) return text;
  text += fmt::format(
      "{:<14}tokens/s measured / planned of the newest {}: median {:.2f}, from {:.2f} to {:.2f}, "
      "{:.0f} % of them within {:.0f} %\n",
      "", history.compared, history.median, history.least, history.most, 100 * history.share_within,
      100 * kTolerance);
  std::string lanes;
  for (const LaneRatio& lane : history.lanes) {
    lanes +=
        fmt::format("{}{} {:.2f}", lanes.empty() ? "" : ", ", one_line(lane.lane), lane.median);
  }
  if (!lanes.empty()) text += fmt::format("{:<14}busy time, medians: {}\n", "", lanes);
  return text;
}

Json history_json(const HistorySummary& history) {
  Json rates = nullptr;
  if (history.compared > 0) {
    rates = {{"runs", history.compared},
             {"median", history.median},
             {"least", history.least},
             {"most", history.most},
             {"share_within_10_percent", history.share_within}};
  }
  Json lanes = Json::array();
  for (const LaneRatio& lane : history.lanes) {
    lanes.push_back({{"lane", lane.lane}, {"median", lane.median}});
  }
  return {{"machine", history.machine},
          {"runs", history.runs},
          {"tokens_per_second", std::move(rates)},
          {"busy_seconds", std::move(lanes)}};
}

std::optional<std::string> history_advice(const HistorySummary& history,
                                          const std::filesystem::path& cache) {
  if (history.compared < kLeastForAdvice || is_within(history.median)) return std::nullopt;
  return fmt::format(
      "runs generate {:.2f} times the planned tokens/s (median of {}): the machine is {} than when "
      "it was measured; the next plan measures it again by itself once its profile in {} is an "
      "hour "
      "old",
      history.median, history.compared, history.median < 1 ? "slower" : "faster",
      path_in_quotes(cache));
}

}  // namespace klotski
