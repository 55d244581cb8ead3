#include "cli/history_report.h"

#include <gtest/gtest.h>

namespace klotski {
namespace {

// A run of 10 planned seconds with 100 tokens that took `takes` times as long.
RunRecord run(double takes, double disk = 1) {
  RunRecord record;
  record.planned = {.seconds = 10,
                    .generated_tokens = 100,
                    .lanes = {{"compute", 4, 0}, {"disk read", 8, 1000}, {"KV in", 1, 10}}};
  record.measured = {.seconds = 10 * takes,
                     .generated_tokens = 100,
                     .lanes = {{"compute", 4 * takes, 0}, {"disk read", 8 * disk, 1000}}};
  return record;
}

HistorySummary history_of(const std::vector<double>& takes) {
  std::vector<RunRecord> runs;
  for (const double factor : takes) runs.push_back(run(factor));
  return summarize("m", runs);
}

TEST(HistoryReport, NoRuns) {
  const HistorySummary none = summarize("m", {});
  EXPECT_EQ(history_text(none), "history       0 runs of this machine\n");
  EXPECT_EQ(history_json(none), Json({{"machine", "m"},
                                      {"runs", 0},
                                      {"tokens_per_second", nullptr},
                                      {"busy_seconds", Json::array()}}));
  EXPECT_EQ(history_advice(none, "/cache"), std::nullopt);
}

TEST(HistoryReport, MedianRangeAndShare) {
  const HistorySummary history = history_of({1, 2, 1 / 1.1, 0.5, 1 / 0.9, 4});
  EXPECT_EQ(history.runs, 6);
  EXPECT_EQ(history.compared, 6);
  EXPECT_DOUBLE_EQ(history.median, 0.95);  // median of 0.25 0.5 0.9 1 1.1 2
  EXPECT_DOUBLE_EQ(history.least, 0.25);
  EXPECT_DOUBLE_EQ(history.most, 2);
  EXPECT_DOUBLE_EQ(history.share_within, 0.5);
  EXPECT_DOUBLE_EQ(history_of({1, 2, 4}).median, 0.5);
}

TEST(HistoryReport, LanesThatPlannedAndMeasured) {
  const HistorySummary history = summarize("m", {run(1, 3), run(2, 2), run(2, 7)});
  ASSERT_EQ(history.lanes.size(), 2u) << "KV in was never measured";
  EXPECT_EQ(history.lanes[0].lane, "compute");
  EXPECT_DOUBLE_EQ(history.lanes[0].median, 2);
  EXPECT_EQ(history.lanes[1].lane, "disk read");
  EXPECT_DOUBLE_EQ(history.lanes[1].median, 3);
  EXPECT_EQ(history_text(history),
            "history       3 runs of this machine\n"
            "              tokens/s measured / planned of the newest 3: median 0.50, from 0.50 to "
            "1.00, 33 % of them within 10 %\n"
            "              busy time, medians: compute 2.00, disk read 3.00\n");
  const Json json = history_json(history);
  EXPECT_EQ(json["tokens_per_second"]["median"], 0.5);
  EXPECT_EQ(json["busy_seconds"][1], Json({{"lane", "disk read"}, {"median", 3.0}}));
}

TEST(HistoryReport, RunsWithoutARateAreNotCompared) {
  RunRecord unplanned = run(1);
  unplanned.planned = {};
  RunRecord stopped = run(1);
  stopped.measured.generated_tokens = 0;
  const HistorySummary history = summarize("m", {unplanned, run(2), stopped});
  EXPECT_EQ(history.runs, 3);
  EXPECT_EQ(history.compared, 1);
  EXPECT_DOUBLE_EQ(history.median, 0.5);
  EXPECT_EQ(summarize("m", {unplanned, stopped}).compared, 0);
}

TEST(HistoryReport, TheNewestCount) {
  std::vector<double> takes(100, 3.0);
  takes.insert(takes.end(), 20, 1.0);
  const HistorySummary history = history_of(takes);
  EXPECT_EQ(history.runs, 120);
  EXPECT_EQ(history.compared, 20);
  EXPECT_DOUBLE_EQ(history.least, 1);
  EXPECT_EQ(history_advice(history, "/cache"), std::nullopt);
}

TEST(HistoryReport, AdvisesToMeasureAgain) {
  const auto advice = [](const std::vector<double>& takes) {
    return history_advice(history_of(takes), "/the/cache").value_or("");
  };
  EXPECT_EQ(advice({2, 2, 2, 2}), "") << "too few";
  EXPECT_EQ(advice({1.05, 0.95, 1, 9, 9}), "") << "the median is near enough";
  EXPECT_EQ(advice(std::vector<double>(5, 1 / 0.9)), "") << "10 % is near enough";
  EXPECT_EQ(advice({2, 2, 2, 2, 2}),
            "runs generate 0.50 times the planned tokens/s (median of 5): the machine is slower "
            "than when it was measured; the next plan measures it again by itself once its "
            "profile in '/the/cache' is an hour old");
  EXPECT_NE(advice({0.5, 0.5, 0.5, 0.5, 0.5, 1}).find("is faster than"), std::string::npos);
}

}  // namespace
}  // namespace klotski
