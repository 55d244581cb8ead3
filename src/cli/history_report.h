#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "hardware/run_record.h"

namespace klotski {

struct LaneRatio {
  std::string lane;
  double median = 0;  // measured / planned busy time
};

// How well a machine's runs were foretold. Only the newest are looked at, so that a correction is
// seen soon.
struct HistorySummary {
  std::string machine;
  int64_t runs = 0;      // runs of this machine
  int64_t compared = 0;  // the newest that planned and measured a rate, at most 20
  // Measured / planned tokens a second of the compared runs; 0 where there are none.
  double median = 0;
  double least = 0;
  double most = 0;
  double share_within = 0;       // share of them that is off by no more than 10 %
  std::vector<LaneRatio> lanes;  // lanes that planned and measured something
};

// `runs` are the machine's runs, oldest first.
HistorySummary summarize(std::string_view machine, const std::vector<RunRecord>& runs);

std::string history_text(const HistorySummary& history);
Json history_json(const HistorySummary& history);

// Advice where at least 5 runs were, in the median, off by more than 10 %. `cache` has the
// profiles.
std::optional<std::string> history_advice(const HistorySummary& history,
                                          const std::filesystem::path& cache);

}  // namespace klotski
