#include "batch/progress_estimate.h"

#include <gtest/gtest.h>

namespace klotski {
namespace {

ExpectedWork hundred_rows() {
  return {.rows = 100,
          .usual = {.prompt_tokens = 10, .generated_tokens = 20, .most_tokens = 30},
          .prefill_seconds = 100.0,
          .decode_seconds = 400.0};
}

TEST(ProgressEstimateTest, BeginsWithThePlanAndEndsWithTheMeasuredPace) {
  const ProgressEstimate estimate(hundred_rows());
  const RunState begin = estimate.after(0.0, {}, 0);
  EXPECT_EQ(begin.tokens_done, 0);
  EXPECT_EQ(begin.tokens_expected, 3000);
  EXPECT_DOUBLE_EQ(begin.share, 0.0);
  EXPECT_DOUBLE_EQ(begin.seconds_left.value_or(0.0), 500.0);

  // Half of the work in double the planned time.
  BatchCounts half;
  half.rows_begun = 100;
  half.prompt_tokens = 1000;
  half.generated_tokens = 750;
  const RunState now = estimate.after(500.0, half, 1000);
  EXPECT_DOUBLE_EQ(now.share, 0.5);
  EXPECT_NEAR(now.seconds_left.value_or(0.0), 480.0, 20.0);
}

TEST(ProgressEstimateTest, RowsThatRunCountBeforeTheyAreDone) {
  const ProgressEstimate estimate(hundred_rows());
  double share = 0.0;
  BatchCounts counts;
  for (int step = 1; step < 20; ++step) {  // all rows run together and none is done
    counts.rows_begun = 100;
    counts.prompt_tokens = 1000;
    counts.generated_tokens = 100 * step;
    const double next = estimate.after(step, counts, 1000).share;
    EXPECT_GT(next, share);
    EXPECT_LT(next, 1.0);
    share = next;
  }
  EXPECT_GT(share, 0.9);
}

TEST(ProgressEstimateTest, LearnsFromRowsThatEndEarly) {
  const ProgressEstimate estimate(hundred_rows());
  BatchCounts counts;
  counts.rows_ok = counts.rows_begun = 90;
  counts.prompt_tokens = 900;
  counts.generated_tokens = counts.generated_by_done = 180;  // two tokens a row, not twenty
  const RunState state = estimate.after(10.0, counts, 900);
  EXPECT_LT(state.tokens_expected, 1600);
  counts.rows_ok = counts.rows_begun = 100;
  EXPECT_DOUBLE_EQ(estimate.after(10.0, counts, 1000).share, 1.0);
  EXPECT_DOUBLE_EQ(estimate.after(10.0, counts, 1000).seconds_left.value_or(1.0), 0.0);
}

TEST(ProgressEstimateTest, FailedRowsAreNotExpected) {
  const ProgressEstimate estimate(hundred_rows());
  BatchCounts counts;
  counts.rows_failed = 50;
  EXPECT_EQ(estimate.after(1.0, counts, 0).tokens_expected, 1500);
}

// Rows that are not done generate one token more at least, however long they are already.
TEST(ProgressEstimateTest, RowsLongerThanTheGuessGoOn) {
  const ProgressEstimate estimate(hundred_rows());
  BatchCounts counts;
  counts.rows_begun = 100;
  counts.prompt_tokens = 1000;
  counts.generated_tokens = 5000;
  const RunState state = estimate.after(1.0, counts, 1000);
  EXPECT_EQ(state.tokens_expected, 1000 + 5000 + 100);
  EXPECT_LT(state.share, 1.0);
}

TEST(ProgressEstimateTest, WithoutAPlanTheMeasuredPaceAloneCounts) {
  const ProgressEstimate estimate(
      {.rows = 10, .usual = {.prompt_tokens = 5, .generated_tokens = 5}});
  EXPECT_FALSE(estimate.after(0.0, {}, 0).seconds_left.has_value());
  BatchCounts counts;
  counts.rows_begun = 10;
  counts.prompt_tokens = 50;
  EXPECT_NEAR(estimate.after(3.0, counts, 50).seconds_left.value_or(0.0), 3.0, 0.01);
  const ProgressEstimate none({});
  EXPECT_DOUBLE_EQ(none.after(0.0, {}, 0).share, 1.0);
}

}  // namespace
}  // namespace klotski
