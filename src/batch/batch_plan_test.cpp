#include "batch/batch_plan.h"

#include <gtest/gtest.h>

#include "base/process_memory.h"
#include "batch/testing.h"

namespace klotski {
namespace {

BatchRows some_rows() {
  return {.size = {.rows = 10, .bytes = 4000, .longest_bytes = 1000},
          .usual = {.prompt_tokens = 20, .generated_tokens = 5, .most_tokens = 60},
          .max_tokens = 8};
}

TEST(BatchPlanTest, TheWorkloadHasRoomForTheLongestRow) {
  const ModelDescription& model = tiny().model.description;
  const Workload workload = workload_of(some_rows(), model);
  EXPECT_EQ(workload.sequences, 10);
  EXPECT_EQ(workload.tokens_per_sequence, 1000 / 2 + 8);
  EXPECT_EQ(workload.prompt_tokens, workload.tokens_per_sequence);
  EXPECT_EQ(workload.typical_tokens, 25);
  EXPECT_EQ(workload.generated_tokens, 5);
  EXPECT_EQ(workload.input_bytes, 5000u);
}

TEST(BatchPlanTest, ContextAndPositionsBoundRows) {
  const ModelDescription& model = tiny().model.description;
  BatchRows rows = some_rows();
  rows.context = 24;
  EXPECT_EQ(workload_of(rows, model).tokens_per_sequence, 24);
  EXPECT_EQ(workload_of(rows, model).typical_tokens, 24);
  rows.context.reset();
  rows.size.longest_bytes = 1 << 30;
  EXPECT_EQ(workload_of(rows, model).tokens_per_sequence, model.max_positions);
}

TEST(BatchPlanTest, AnEmptyInputIsStillAWorkload) {
  const Workload workload = workload_of({.size = {}, .usual = {}}, tiny().model.description);
  EXPECT_EQ(workload.sequences, 1);
  EXPECT_EQ(workload.generated_tokens, 1);
}

TEST(BatchPlanTest, RowsTooLongForTheMemoryLeaveRoomForAverageOnes) {
  SessionOptions options;
  options.device = "cpu";
  options.kernels = "reference";  // plans by rules: nothing has to be measured
  // Keys and values of a hundred tokens: the longest row needs more, an average one less.
  const ModelDescription& model = tiny().model.description;
  options.limits.kv_bytes = 100 / PagedKvCache::kPageTokens *
                            PagedKvCache::page_bytes(model, kv_type(options.limits.precision));
  Session session(open_model(tiny().folder), options);
  BatchRows rows = some_rows();
  rows.size.bytes = 1000;
  EXPECT_EQ(load_for_batch(session, rows).tokens_per_sequence, 60);
  EXPECT_TRUE(session.loaded());
  rows.usual.most_tokens = 400;
  EXPECT_THROW(load_for_batch(session, rows), Error);
}

TEST(BatchPlanTest, TheWindowHoldsMoreThanAGroup) {
  Policy policy;
  policy.group.micro_batch = 64;
  policy.group.micro_batches = 8;
  const BatchWindow window = window_for(policy, {.prompt_tokens = 1000});
  EXPECT_EQ(window.rows, BatchWindow().rows + 512);
  EXPECT_EQ(window.pending_tokens, window.rows * 1000);
  EXPECT_EQ(window_for(policy, {}).pending_tokens, BatchWindow().pending_tokens);
}

}  // namespace
}  // namespace klotski
