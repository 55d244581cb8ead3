// A context of 8192 positions, with the cache in memory and in a spill file: logits are bit for bit
// those of the plain loop.

#include <gtest/gtest.h>

#include <random>

#include "engine/pipeline.h"
#include "engine/testing/pipeline_runs.h"

namespace klotski {
namespace {

constexpr int64_t kPositions = 8192;

// A text of kPositions tokens, the last three of which are decoded one by one.
Texts long_text(int64_t vocabulary) {
  std::mt19937_64 random(31);
  Texts texts;
  texts.prompt.push_back(kPositions - 3);
  std::vector<TokenId>& tokens = texts.tokens.emplace_back(static_cast<size_t>(kPositions));
  for (TokenId& token : tokens) {
    token = static_cast<TokenId>(random() % static_cast<uint64_t>(vocabulary));
  }
  return texts;
}

TEST(LongContext, OfLatentAttentionInMemoryAndSpilled) {
  TestModel test(test_model("deepseek_v3"));
  test.description.max_positions = kPositions;
  const Texts text = long_text(test.description.vocabulary);
  const std::vector<Logits> expected = run_resident(test, text, Precision::bf16, cpu_processor());
  const uint64_t page = PagedKvCache::page_bytes(test.description, DType::BF16);
  EXPECT_EQ(page, 3 * 16 * (32 + 16) * 2) << "three layers, 16 positions, one vector each";
  const auto pages = static_cast<uint64_t>(PagedKvCache::pages_for(kPositions));
  for (const bool spills : {false, true}) {
    PipelineOptions options;
    options.spill_folder = ::testing::TempDir();
    const RunLimits limits{.precision = Precision::bf16,
                           .kv_bytes = (spills ? pages / 2 : pages) * page};
    PreparedModel prepared = test.prepare(limits, text.workload(), options, cpu_processor());
    std::mt19937_64 random(1);
    int64_t spilled = 0;
    EXPECT_EQ(run_pipeline(prepared.pipeline(), text, random, &spilled), expected);
    EXPECT_EQ(spilled, spills ? 1 : 0);
  }
}

}  // namespace
}  // namespace klotski
