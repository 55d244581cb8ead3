// Passes that the planner predicts a run by are the passes of an engine.

#include "planner/planned_passes.h"

#include <gtest/gtest.h>

#include <random>

#include "engine/engine.h"
#include "engine/testing/models.h"
#include "schedule/testing.h"

namespace klotski {
namespace {

// Random work under random policies: pass by pass the planner foresees the rows of every sequence,
// and so of every micro-batch, that the engine computes.
TEST(PlannedPasses, AreThoseThatTheEngineForms) {
  const TestModel model(test_model("mixtral"));
  std::mt19937_64 random(11);
  int64_t merged = 0;
  int64_t cut = 0;
  int64_t waited = 0;
  for (int trial = 0; trial < 25; ++trial) {
    PlannedWork work{.sequences = between(random, 1, 14),
                     .prompt_tokens = between(random, 1, 24),
                     .generated_tokens = between(random, 1, 8)};
    RunLimits limits{.micro_batch = between(random, 1, 4), .micro_batches = between(random, 1, 4)};
    const int64_t pages = PagedKvCache::pages_for(work.prompt_tokens + work.generated_tokens);
    work.at_once = between(random, 1, 16);
    limits.kv_bytes = static_cast<uint64_t>(work.at_once * pages) *
                      PagedKvCache::page_bytes(model.description, kv_type(limits.precision));
    RunPlan plan = model.plan(limits, {.sequences = work.sequences,
                                       .tokens_per_sequence = pages * PagedKvCache::kPageTokens,
                                       .prompt_tokens = work.prompt_tokens});
    plan.policy.group.micro_batch_rows =
        std::min(plan.policy.group.micro_batch_rows, *limits.micro_batch + between(random, 0, 40));
    plan.policy.group.decode_batch = between(random, 0, 12);
    Target target{.ops = reference_processor()};
    PreparedModel prepared(model.description, model.checkpoint, target, plan);

    Engine engine(prepared.pipeline());
    for (int64_t i = 0; i < work.sequences; ++i) {
      engine.submit({.prompt = std::vector<TokenId>(static_cast<size_t>(work.prompt_tokens),
                                                    static_cast<TokenId>(i)),
                     .sampling = {},
                     .max_tokens = work.generated_tokens,
                     .stop_tokens = {}});
    }
    PlannedPasses planned(prepared.policy(), work);
    while (const std::optional<PlannedPass> pass = planned.next()) {
      const int64_t pending = engine.pending_tokens();
      ASSERT_FALSE(engine.idle());
      const auto gained = static_cast<int64_t>(engine.step().size());
      ASSERT_EQ(engine.last_pass(), pass->formed);
      ASSERT_EQ(gained, pass->gained);
      int64_t rows = 0;
      for (const PassRows& one : pass->formed.rows) {
        rows += one.tokens;
        cut += one.complete ? 0 : 1;
      }
      const bool decoding = pass->prompt_rows == 0;
      merged += decoding && prepared.policy().merged_batches() > 1 ? 1 : 0;
      waited += pending > rows ? 1 : 0;
      ASSERT_EQ(prepared.pipeline().choices().tokens(), rows) << "computed by the pipeline";
    }
    ASSERT_TRUE(engine.idle());
  }
  EXPECT_GT(merged, 20);
  EXPECT_GT(cut, 20);
  EXPECT_GT(waited, 20);
}

}  // namespace
}  // namespace klotski
