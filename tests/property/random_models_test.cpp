// Models of random shape with random weights: every strategy, in any grouping and any memory,
// equals the plain loop with everything in memory bit for bit.

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <filesystem>

#include "base/process_memory.h"
#include "engine/testing/pipeline_runs.h"
#include "synth/synth.h"

namespace klotski {
namespace {

int64_t between(std::mt19937_64& random, int64_t least, int64_t most) {
  return least + static_cast<int64_t>(random() % static_cast<uint64_t>(most - least + 1));
}

std::string random_shape(std::mt19937_64& random) {
  constexpr std::array kBases = {"", "qwen3-30b-a3b,", "qwen1.5-moe-a2.7b,", "olmoe-1b-7b,"};
  const int64_t experts = between(random, 2, 12);
  return fmt::format("{}L={},H={},F={},E={},K={},heads=4,kv_heads={},head_dim=8,vocab=300",
                     kBases[static_cast<size_t>(between(random, 0, 3))], between(random, 1, 4),
                     32 * between(random, 1, 2), 8 * between(random, 1, 5), experts,
                     between(random, 1, std::min<int64_t>(experts, 4)),
                     std::array{1, 2, 4}[random() % 3]);
}

RunLimits random_limits(std::mt19937_64& random) {
  RunLimits limits{.strategy = static_cast<Strategy>(between(random, 0, kStrategies - 1))};
  limits.expert_slots = between(random, 1, 20);
  limits.micro_batch = between(random, 1, 4);
  limits.micro_batches = between(random, 1, 4);
  limits.hot_experts = between(random, 1, 4);
  limits.path_length = static_cast<int>(between(random, 1, 2));
  limits.eviction = std::array{"furthest", "lru", "lfu"}[random() % 3];
  if (random() % 2 == 0)
    limits.ram_bytes = resident_bytes() + (32u << 20) +
                       cpu_processor().scratch_bytes(
                           {.rows = 512, .in_width = 256, .expert_width = 256, .head_dim = 64});
  return limits;
}

TEST(RandomModels, EveryStrategyEqualsTheResidentRun) {
  std::mt19937_64 random(23);
  const std::filesystem::path folder =
      std::filesystem::path(::testing::TempDir()) / fmt::format("random-models-{}", ::getpid());
  for (int model = 0; model < 8; ++model) {
    std::filesystem::remove_all(folder);
    const std::string shape = random_shape(random);
    SCOPED_TRACE(shape);
    synthesise(
        {.shape = shape,
         .folder = folder,
         .seed = random(),
         .share = {},
         .dtype = std::array{DType::BF16, DType::F16, DType::F32}[random() % 3],
         .tokenizer = {}},
        [](uint64_t, uint64_t) {}, /*max_shard_bytes=*/40'000);
    const TestModel test(folder);
    for (int trial = 0; trial < 6; ++trial) {
      const Texts texts = random_texts(random, 1 + random() % 6, test.description.vocabulary);
      const std::vector<Logits> expected = run_resident(test, texts);
      const RunLimits limits = random_limits(random);
      SCOPED_TRACE(std::string(strategy_name(*limits.strategy)));
      PipelineOptions options;
      options.executor.stress_delay = std::chrono::microseconds(20);
      if (random() % 2 == 0) options.executor.stress_seed = random();
      PreparedModel prepared = test.prepare(limits, texts.workload(), options);
      ASSERT_EQ(run_pipeline(prepared.pipeline(), texts, random), expected) << "trial " << trial;
    }
  }
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace klotski
