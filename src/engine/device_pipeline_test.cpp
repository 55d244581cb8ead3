// The pipeline over a device's memory, host memory and a disk, on a device that any machine has:
// mistakes with tiers, lanes and copies show without a GPU.

#include <gtest/gtest.h>

#include <array>
#include <optional>

#include "engine/engine.h"
#include "engine/testing/device_runs.h"

namespace klotski {
namespace {

class DevicePipeline : public DeviceRuns {};

// Results are equal whatever the slots of both memories, the strategy, the grouping and the timing.
TEST_P(DevicePipeline, EqualsTheResidentRunBitForBit) {
  for (int trial = 0; trial < trials(12); ++trial) {
    SCOPED_TRACE(trial);
    const Texts texts = random_texts(random_, 1 + random_() % 6, test_.description.vocabulary);
    ASSERT_NO_FATAL_FAILURE(equals_resident_run(texts, random_limits()));
  }
  EXPECT_GT(device_.bytes_to_device(), 0u);
  EXPECT_GT(lending_, 0);
}

// The CPU computes experts where they lie, the device others: rows go down, results come up, and
// nothing differs.
TEST_P(DevicePipeline, ExpertsThatTheCpuSharesGiveTheSameBits) {
  int64_t computed_on_host = 0;
  uint64_t rows_back = 0;
  for (int trial = 0; trial < trials(12); ++trial) {
    const Texts texts = random_texts(random_, 1 + random_() % 6, test_.description.vocabulary);
    RunLimits limits = random_limits();
    limits.strategy = Strategy::hybrid;
    options_.keep_spans = 100000;
    const std::vector<Logits> expected = run_resident(plain_, texts, limits.precision);
    RunPlan chosen = plan(limits, texts.workload());
    ASSERT_GT(chosen.policy.division.shared_rows, 0);
    take_slots_away(chosen);
    share_experts(chosen.policy);
    PreparedModel prepared(test_.description, test_.checkpoint, target_, chosen, options_);
    ASSERT_EQ(run_pipeline(prepared.pipeline(), texts, random_), expected) << "trial " << trial;
    for (const TimelineSpan& span : prepared.pipeline().timeline().spans()) {
      if (span.lane == Lane::kCpu) ++computed_on_host;
      if (span.lane == Lane::kRowsUp) rows_back += span.bytes;
    }
    EXPECT_LE(prepared.host()->tier.peak_bytes(), chosen.host->limit_bytes);
  }
  bool routed = false;
  for (const Layer& layer : test_.description.layers) routed |= layer.feed_forward.routed;
  EXPECT_EQ(computed_on_host > 20, routed) << computed_on_host;
  EXPECT_EQ(rows_back > 0, routed);
}

// Both processors compute a part of one expert, and the sum of the parts is rounded once more:
// results are equal but for that, and equal in every bit whatever the timing.
TEST_P(DevicePipeline, SlicedExpertsGiveTheSameButForRounding) {
  int slices = 0;
  bool sliceable = false;
  for (int trial = 0; trial < trials(6); ++trial) {
    const Texts texts = random_texts(random_, 1 + random_() % 4, test_.description.vocabulary);
    RunLimits limits = random_limits();
    limits.strategy = Strategy::hybrid;
    limits.precision = Precision::f32;
    options_.keep_spans = 100000;
    RunPlan chosen = plan(limits, texts.workload());
    ASSERT_TRUE(chosen.policy.division.slices_experts);
    take_slots_away(chosen);
    share_experts(chosen.policy, true);
    for (const Layer& layer : test_.description.layers) {
      const FeedForward& part = layer.feed_forward;
      sliceable |= part.routed && part.width >= 128;
    }
    std::array<std::vector<Logits>, 2> found;
    for (std::vector<Logits>& logits : found) {
      options_.executor.stress_seed = random_();
      PreparedModel prepared(test_.description, test_.checkpoint, target_, chosen, options_);
      std::mt19937_64 same(static_cast<uint64_t>(trial));
      logits = run_pipeline(prepared.pipeline(), texts, same);
      const uint64_t whole =
          UnitLayouts(test_.description, test_.checkpoint).packed_bytes(UnitKind::expert);
      for (const TimelineSpan& span : prepared.pipeline().timeline().spans()) {
        if (span.work == "load expert" && span.bytes < whole / 2 + 1) ++slices;
      }
      EXPECT_LE(prepared.compute_tier().peak_bytes(), chosen.memory.limit_bytes);
    }
    EXPECT_EQ(found[0], found[1]) << "trial " << trial;
    const std::vector<Logits> expected = run_resident(plain_, texts, limits.precision);
    ASSERT_EQ(found[0].size(), expected.size());
    for (size_t i = 0; i < expected.size(); ++i) {
      ASSERT_EQ(found[0][i].size(), expected[i].size());
      for (size_t pass = 0; pass < expected[i].size(); ++pass) {
        for (size_t k = 0; k < expected[i][pass].size(); ++k) {
          ASSERT_NEAR(found[0][i][pass][k], expected[i][pass][k], 1e-3) << "trial " << trial;
        }
      }
    }
  }
  EXPECT_EQ(slices > 5, sliceable) << slices;
}

// In the least memory that any policy fits into, planning does not fail for a buffer for slices.
TEST_P(DevicePipeline, SlicesAreGivenUpWhereTheyDoNotFit) {
  const Texts texts = random_texts(random_, 3, test_.description.vocabulary);
  RunLimits limits{.precision = Precision::f32, .ram_bytes = roomy_ram()};
  limits.strategy = Strategy::hybrid;
  EXPECT_TRUE(plan(limits, texts.workload()).policy.division.slices_experts);
  const uint64_t slice = slice_bytes(UnitLayouts(test_.description, test_.checkpoint));
  uint64_t too_few = 100 * kMiB;
  uint64_t enough = kGiB;
  std::optional<RunPlan> least;
  while (!least || enough - too_few > slice / 4) {
    limits.vram_bytes = (too_few + enough) / 2;
    try {
      least = plan(limits, texts.workload());
      enough = *limits.vram_bytes;
    } catch (const Error& error) {
      ASSERT_EQ(error.kind(), ErrorKind::does_not_fit);
      too_few = *limits.vram_bytes;
    }
  }
  EXPECT_FALSE(least->policy.division.slices_experts);
}

// Keys and values lie in host memory, where the CPU attends to them; those of prompts come from the
// device.
TEST_P(DevicePipeline, AttentionOnTheCpuGivesTheSameBits) {
  int64_t attended = 0;
  for (int trial = 0; trial < trials(12); ++trial) {
    const Texts texts = random_texts(random_, 1 + random_() % 6, test_.description.vocabulary, 40);
    RunLimits limits = random_limits();
    limits.cpu_attention = true;
    if (random_() % 3 == 0) limits.strategy = Strategy::cgopipe;
    options_.keep_spans = 100000;
    const std::vector<Logits> expected = run_resident(plain_, texts, limits.precision);
    RunPlan chosen = plan(limits, texts.workload());
    ASSERT_TRUE(chosen.policy.division.attends_elsewhere());
    EXPECT_EQ(chosen.policy.layout.compute().kv_bytes, 0u);
    take_slots_away(chosen);
    share_experts(chosen.policy);
    PreparedModel prepared(test_.description, test_.checkpoint, target_, chosen, options_);
    ASSERT_EQ(run_pipeline(prepared.pipeline(), texts, random_), expected) << "trial " << trial;
    for (const TimelineSpan& span : prepared.pipeline().timeline().spans()) {
      if (span.lane == Lane::kCpu && span.work == "attention") ++attended;
    }
    EXPECT_LE(prepared.compute_tier().peak_bytes(), chosen.memory.limit_bytes);
    EXPECT_LE(prepared.host()->tier.peak_bytes(), chosen.host->limit_bytes);
  }
  EXPECT_GT(attended, 20);
}

// Where a plan has no costs of experts, the device computes all.
TEST_P(DevicePipeline, WithoutCostsTheCpuComputesNothing) {
  const Texts texts = random_texts(random_, 3, test_.description.vocabulary);
  RunLimits limits = random_limits();
  limits.strategy = Strategy::hybrid;
  const std::vector<Logits> expected = run_resident(plain_, texts, limits.precision);
  RunPlan chosen = plan(limits, texts.workload());
  take_slots_away(chosen);
  PreparedModel prepared(test_.description, test_.checkpoint, target_, chosen, options_);
  ASSERT_EQ(run_pipeline(prepared.pipeline(), texts, random_), expected);
  EXPECT_EQ(prepared.pipeline().report().totals.lane(Lane::kCpu).busy.count(), 0);
}

// With room on the device for one sequence or two, the other sequences' keys and values lie in host
// memory.
TEST_P(DevicePipeline, SpilledKeysAndValuesLieInTheProgramsMemory) {
  int64_t spilled = 0;
  for (int trial = 0; trial < trials(6); ++trial) {
    const Texts texts = random_texts(random_, 2 + random_() % 6, test_.description.vocabulary, 40);
    RunLimits limits = random_limits();
    limits.kv_bytes = (1 + random_() % 2) *
                      sequence_cache_bytes(test_.description, limits.precision, texts.longest());
    const std::vector<Logits> expected = run_resident(plain_, texts, limits.precision);
    PreparedModel prepared(test_.description, test_.checkpoint, target_,
                           plan(limits, texts.workload()), options_);
    ASSERT_EQ(run_pipeline(prepared.pipeline(), texts, random_, &spilled), expected)
        << "trial " << trial;
  }
  EXPECT_GE(spilled, trials(6));
  EXPECT_GT(device_.bytes_to_host(), 0u);
}

// A CPU that shares experts waits for all attention: as many micro-batches have a stage as memory
// allows that no weights want.
TEST_P(DevicePipeline, SpilledKeysAndValuesHaveStagesWhereTheCpuShares) {
  RunLimits limits;
  limits.micro_batch = 2;
  limits.micro_batches = 6;
  const Workload work{.sequences = 12, .tokens_per_sequence = 200, .prompt_tokens = 50};
  limits.kv_bytes = sequence_cache_bytes(test_.description, limits.precision, 200);
  const auto stages_with = [&](Strategy strategy) {
    limits.strategy = strategy;
    const Policy policy = plan(limits, work).policy;
    EXPECT_GT(policy.layout.compute().kv_spill_bytes, 0u);
    return policy.layout.kv_stages;
  };
  EXPECT_EQ(stages_with(Strategy::hybrid), limits.micro_batches);
  EXPECT_EQ(stages_with(Strategy::klotski), 2);
  limits.cpu_attention = true;
  EXPECT_EQ(stages_with(Strategy::hybrid), 2) << "only prompts pass through them";
}

// Weights in host memory are found there by the next model of an equal plan.
TEST_P(DevicePipeline, HostSlotsAreReadOnce) {
  const Texts texts = random_texts(random_, 3, test_.description.vocabulary);
  const RunLimits limits{.precision = Precision::f32, .ram_bytes = roomy_ram()};
  const std::vector<Logits> expected = run_resident(plain_, texts, limits.precision);
  const RunPlan chosen = plan(limits, texts.workload());
  const HostTier* first = nullptr;
  for (int run = 0; run < 2; ++run) {
    PreparedModel prepared(test_.description, test_.checkpoint, target_, chosen, options_);
    prepared.pipeline().preload([](uint64_t done, uint64_t total) { EXPECT_LE(done, total); });
    ASSERT_EQ(run_pipeline(prepared.pipeline(), texts, random_), expected);
    EXPECT_EQ(prepared.pipeline().report().experts.misses, 0);
    if (run == 0) first = prepared.host();
    EXPECT_EQ(prepared.host(), first);
  }
}

// A copy that fails ends the pass; all leases and slots are in order again afterwards.
TEST_P(DevicePipeline, AFailedCopyEndsThePassAlone) {
  const Texts texts = random_texts(random_, 3, test_.description.vocabulary);
  for (const Strategy strategy : {Strategy::klotski, Strategy::cgopipe, Strategy::hybrid}) {
    const RunLimits limits{.strategy = strategy,
                           .precision = Precision::f32,
                           .cpu_attention = strategy != Strategy::klotski};
    const std::vector<Logits> expected = run_resident(plain_, texts, limits.precision);
    RunPlan chosen = plan(limits, texts.workload());
    take_slots_away(chosen);
    share_experts(chosen.policy);
    PreparedModel prepared(test_.description, test_.checkpoint, target_, chosen, options_);
    for (const int k : {0, 3, 7, 12, 17, 23, 31, 42}) {  // few runs make more copies than that
      device_.fail_copy(k);
      try {
        run_pipeline(prepared.pipeline(), texts, random_);
        EXPECT_GT(k, 7);
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::device_lost) << error.what();
      }
      device_.fail_copy(-1);
    }
    EXPECT_EQ(run_pipeline(prepared.pipeline(), texts, random_), expected);
  }
}

// A device that is lost is no fault of a request: the run ends, and names the requests it leaves
// undone.
TEST_P(DevicePipeline, ALostDeviceEndsTheRun) {
  const Workload workload{.sequences = 2, .tokens_per_sequence = 8, .prompt_tokens = 4};
  PreparedModel prepared(test_.description, test_.checkpoint, target_, plan({}, workload),
                         options_);
  Engine engine(prepared.pipeline());
  for (int i = 0; i < 2; ++i) {
    engine.submit({.prompt = {1, 2, 3}, .sampling = {}, .max_tokens = 4, .stop_tokens = {}});
  }
  device_.fail_copy(1);
  try {
    engine.step();
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::device_lost);
    EXPECT_NE(std::string(error.what()).find("2 unfinished sequences"), std::string::npos)
        << error.what();
  }
}

// Plans keep any limit of the device's memory and of host memory.
TEST_P(DevicePipeline, PlansKeepBothLimits) {
  int fitted = 0;
  for (int trial = 0; trial < 40; ++trial) {
    RunLimits limits = random_limits();
    limits.vram_bytes = 292 * kMiB + 33 * kMiB + random_() % (40 * kMiB);
    limits.ram_bytes = roomy_ram();
    const Workload workload{.sequences = between(random_, 1, 64),
                            .tokens_per_sequence = between(random_, 8, 200),
                            .prompt_tokens = between(random_, 1, 8)};
    try {
      const RunPlan chosen = plan(limits, workload);
      ++fitted;
      EXPECT_LE(chosen.memory.total_bytes(), *limits.vram_bytes);
      EXPECT_LE(chosen.host->total_bytes(), *limits.ram_bytes);
      const Policy& policy = chosen.policy;
      const int64_t slots = policy.layout.compute().slots[index_of(UnitKind::expert)];
      EXPECT_LE(policy.cache.kept_experts + policy.layout.lent_slots, slots);
      if (policy.layout.lent_slots > 0) {
        const UnitLayouts layouts(test_.description, test_.checkpoint);
        EXPECT_GE(static_cast<uint64_t>(policy.layout.lent_slots) *
                      DeviceMemory::rounded(layouts.packed_bytes(UnitKind::expert)),
                  group_row_bytes(test_.description, policy, policy.group.rows()) +
                      working_bytes(test_.description, layouts, *ops_, policy, policy.group.rows(),
                                    policy.decode_sequences()));
      }
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::does_not_fit) << error.what();
    }
  }
  EXPECT_GT(fitted, 0);
}

// Memory that the driver takes for the first operations was planned before; only more than that
// counts.
TEST_P(DevicePipeline, APlanIsTheSameWhateverRanBefore) {
  const RunLimits limits{.ram_bytes = roomy_ram(), .vram_bytes = 400 * kMiB};
  const Workload workload{.sequences = 16, .tokens_per_sequence = 40, .prompt_tokens = 8};
  const auto program_bytes = [&] { return plan(limits, workload).memory.process_bytes; };
  const uint64_t before = program_bytes();
  device_.take_own(100 * kMiB);
  EXPECT_EQ(program_bytes(), before);
  device_.take_own(80 * kMiB);
  EXPECT_EQ(program_bytes(), before + (100 + 80 - 192 + 48) * kMiB);
}

TEST_P(DevicePipeline, SoIsWhatItMayUseOfAWholeDevice) {
  const auto limit = [&] { return vram_limit({}, *machine_memory(target_, options_).device); };
  const uint64_t before = limit();
  EXPECT_EQ(before, device_.info().total_bytes - (kGiB - 100 * kMiB) / 16);
  device_.take_own(100 * kMiB);
  EXPECT_EQ(limit(), before);
}

TEST_P(DevicePipeline, APlanThatDoesNotFitTheDeviceIsRefusedByName) {
  const Workload workload{.sequences = 1, .tokens_per_sequence = 8, .prompt_tokens = 4};
  const RunLimits limits{.vram_bytes = 64 * kMiB};
  try {
    plan(limits, workload);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::does_not_fit);
    EXPECT_NE(std::string(error.what()).find("VRAM"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("--vram"), std::string::npos) << error.what();
  }
}

INSTANTIATE_TEST_SUITE_P(
    Families, DevicePipeline,
    ::testing::Values("mixtral", "qwen2_moe", "qwen3_moe", "olmoe", "gpt_oss", "llama4_text",
                      "deepseek_v3", "variants/qwen3_next", "variants/qwen3_next_states_alone",
                      "variants/llama4_chunks_dense", "variants/qwen2_windows_dense",
                      "variants/arctic", "variants/arctic_dense_layers", "variants/dbrx_clip",
                      "variants/ernie_interval_least_sum", "variants/glm4_bias_dense",
                      "variants/glm4_head_norm_groups", "variants/granite_factors_bias",
                      "variants/hunyuan_bias_layers", "variants/minimax_partial",
                      "variants/phimoe_biases_window", kCompact, kDrill));

}  // namespace
}  // namespace klotski
