#include "engine/prepared_model.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "base/process_memory.h"
#include "engine/engine.h"
#include "engine/testing/pipeline_runs.h"

namespace klotski {
namespace {

class PreparedModelTest : public ::testing::TestWithParam<const char*> {
 protected:
  PreparedModelTest() : test_(test_model(GetParam())) {}

  TestModel test_;
};

// Plans are kept or refused, whatever the limit; a plan that runs gives the right results.
TEST_P(PreparedModelTest, RandomLimitsAreKeptOrRefused) {
  std::mt19937_64 random(3);
  const Texts texts = random_texts(random, 6, test_.description.vocabulary);
  const std::vector<Logits> expected = run_resident(test_, texts);
  int ran = 0;
  int refused = 0;
  // Grows with the number of compute threads.
  const uint64_t scratch = reference_processor().scratch_bytes(
      {.rows = 512, .in_width = test_.description.hidden, .expert_width = 256, .head_dim = 64});
  for (int trial = 0; trial < 16; ++trial) {
    RunLimits limits{.strategy = static_cast<Strategy>(random() % kStrategies)};
    limits.ram_bytes = resident_bytes() + 22 * kMiB + scratch + random() % (5 * kMiB);
    if (random() % 3 == 0) limits.kv_bytes = random() % kMiB;
    if (random() % 3 == 0) limits.expert_slots = 1 + static_cast<int64_t>(random() % 8);
    PipelineOptions options;
    if (random() % 2 == 0) options.spill_folder = ::testing::TempDir();
    try {
      PreparedModel prepared = test_.prepare(limits, texts.workload(), options);
      ++ran;
      EXPECT_LE(prepared.plan().memory.total_bytes(), *limits.ram_bytes);
      EXPECT_EQ(prepared.plan().memory.limit_bytes, *limits.ram_bytes);
      if (limits.kv_bytes) {
        EXPECT_LE(prepared.policy().layout.compute().kv_bytes, *limits.kv_bytes);
      }
      if (limits.expert_slots) {
        EXPECT_LE(prepared.policy().layout.compute().slots[index_of(UnitKind::expert)],
                  *limits.expert_slots);
      }
      ASSERT_EQ(run_pipeline(prepared.pipeline(), texts, random), expected) << "trial " << trial;
      EXPECT_LE(prepared.compute_tier().peak_bytes(), prepared.plan().memory.total_bytes());
    } catch (const Error& error) {
      ++refused;
      EXPECT_EQ(error.kind(), ErrorKind::does_not_fit) << error.what();
      EXPECT_NE(std::string(error.what()).find("too little"), std::string::npos) << error.what();
    }
  }
  EXPECT_GT(ran, 0);
  EXPECT_GT(refused, 0);
}

INSTANTIATE_TEST_SUITE_P(Families, PreparedModelTest,
                         ::testing::Values("mixtral", "qwen2_moe", "qwen3_moe",
                                           "variants/qwen2_windows_dense", "variants/qwen3_next",
                                           "variants/qwen3_next_states_alone"));

// Staging buffers are large compared with the pages of a small model: where they do not fit, it
// runs without them, as it would had no folder been named.
TEST(PreparedModelSpill, AFolderNeverMakesAModelFitLess) {
  const TestModel test(test_model("mixtral"));
  const Workload workload{.sequences = 64, .tokens_per_sequence = 256, .prompt_tokens = 4};
  int ran = 0;
  for (uint64_t extra = 24 * kMiB; extra < 34 * kMiB; extra += 256 * kKiB) {
    const uint64_t before = resident_bytes();
    const RunLimits limits{.ram_bytes = before + extra};
    try {
      test.prepare(limits, workload);
    } catch (const Error&) {
      continue;
    }
    ++ran;
    PipelineOptions options;
    options.spill_folder = ::testing::TempDir();
    // The first attempt leaves the process larger, under a sanitizer by what it has freed as well.
    RunLimits with_slack = limits;
    *with_slack.ram_bytes += resident_bytes() - std::min(before, resident_bytes()) + kMiB;
    EXPECT_NO_THROW(test.prepare(with_slack, workload, options)) << extra;
  }
  EXPECT_GT(ran, 0);
}

// Keys and values are kept in the plan's precision.
TEST(PreparedModelPrecision, KeysAndValuesInBf16TakeHalfTheMemory) {
  const TestModel test(test_model("mixtral"));
  const Workload workload{.sequences = 8, .tokens_per_sequence = 64, .prompt_tokens = 8};
  const PreparedModel f32 = test.prepare({.precision = Precision::f32}, workload);
  const PreparedModel bf16 = test.prepare({.precision = Precision::bf16}, workload);
  EXPECT_EQ(f32.plan().memory.kv_bytes, 2 * bf16.plan().memory.kv_bytes);
}

// Each sequence of a full group has a state, in memory or in the file, whatever the limit of the
// cache; the longest sequence fits.
TEST(PreparedModelStates, TakeTheirShareOfTheCache) {
  constexpr Precision kPrecision = Precision::f32;
  for (const char* name : {"variants/qwen3_next", "variants/qwen3_next_states_alone"}) {
    SCOPED_TRACE(name);
    const TestModel test(test_model(name));
    const uint64_t state = SequenceStates::sequence_bytes(test.description);
    const uint64_t sequence = sequence_cache_bytes(test.description, kPrecision, 64);
    const Workload workload{.sequences = 8, .tokens_per_sequence = 64, .prompt_tokens = 8};
    const RunLimits all{.precision = kPrecision, .micro_batch = 4, .micro_batches = 2};
    const PreparedModel roomy = test.prepare(all, workload);
    EXPECT_EQ(roomy.plan().memory.kv_bytes, 8 * sequence);
    EXPECT_EQ(roomy.policy().layout.compute().state_bytes, 8 * state);
    EXPECT_EQ(roomy.policy().layout.compute().state_spill_bytes, 0u);

    RunLimits few = all;
    few.kv_bytes = 3 * sequence + sequence / 2;
    EXPECT_EQ(test.prepare(few, workload).policy().layout.compute().state_bytes, 3 * state);
    PipelineOptions options;
    options.spill_folder = ::testing::TempDir();
    const PreparedModel spilling = test.prepare(few, workload, options);
    const TierMemory& planned = spilling.policy().layout.compute();
    uint64_t spilled_state = 0;
    for (const uint64_t bytes : SequenceStates::spilled_version_bytes(test.description)) {
      spilled_state += 2 * bytes;
    }
    EXPECT_EQ(planned.state_bytes, 3 * state);
    EXPECT_EQ(planned.state_spill_bytes, 5 * spilled_state);

    few.kv_bytes = sequence - 1;
    EXPECT_THROW(test.prepare(few, workload), Error);
  }
}

// A request longer than the plan foresaw cannot pass through the stages.
TEST(PreparedModelSpill, ARequestBeyondThePlanIsRefusedAlone) {
  const TestModel test(test_model("mixtral"));
  const uint64_t page = PagedKvCache::page_bytes(test.description, kv_type(RunLimits().precision));
  PipelineOptions options;
  options.spill_folder = ::testing::TempDir();
  PreparedModel prepared =
      test.prepare({.kv_bytes = 2 * page, .micro_batch = 2, .micro_batches = 4},
                   {.sequences = 8, .tokens_per_sequence = 32, .prompt_tokens = 8}, options);
  ASSERT_GT(prepared.policy().layout.kv_stages, 0);
  Engine engine(prepared.pipeline());
  const Request small{.prompt = {1, 2, 3}, .sampling = {}, .max_tokens = 20, .stop_tokens = {}};
  Request large = small;
  large.max_tokens = 90;
  for (int i = 0; i < 3; ++i) engine.submit(small);
  try {
    engine.submit(large);
    ADD_FAILURE() << "it was taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::does_not_fit);
  }
  while (!engine.idle()) {
    for (const Progress& progress : engine.step()) {
      ASSERT_NE(progress.finish, Finish::failed) << progress.error;
    }
  }
}

}  // namespace
}  // namespace klotski
