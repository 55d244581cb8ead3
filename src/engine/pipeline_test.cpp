#include "engine/pipeline.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "engine/testing/pipeline_runs.h"
#include "schedule/testing.h"
#include "weights/testing.h"

namespace klotski {
namespace {

struct Settings {
  RunLimits limits;
  PipelineOptions options;
};

// Any predictor but the oracle, which needs recorded routing; the network of "path" has not been
// trained, so that it is mostly wrong.
PredictorChoice random_predictor(std::mt19937_64& random, const RoutingTraceShape& shape) {
  const std::span<const std::string_view> names = predictor_names();
  PredictorChoice choice{.name = "oracle"};
  while (choice.name == "oracle") choice.name = names[random() % names.size()];
  choice.history = std::make_shared<ActivationHistory>(shape, 4);
  choice.network = std::make_shared<PathNetwork>(
      PathNetworkShape{.routing = shape, .width = 8, .heads = 2, .inner = 8, .chunk = 4});
  choice.network->initialise(
      random(), std::vector<double>(static_cast<size_t>(choice.network->shape().experts()), 0.1));
  return choice;
}

Settings random_settings(std::mt19937_64& random, const ModelDescription& model) {
  Settings settings;
  settings.options.predictor = random_predictor(random, routing_shape(model));
  settings.options.follow_unjudged = random() % 2 == 0;
  settings.limits.strategy = static_cast<Strategy>(between(random, 0, kStrategies - 1));
  settings.limits.expert_slots = between(random, 1, 40);
  settings.limits.micro_batch = between(random, 1, 4);
  settings.limits.micro_batches = between(random, 1, 4);
  settings.limits.hot_experts = between(random, 1, 4);
  const std::span<const std::string_view> rules = eviction_rule_names();
  settings.limits.eviction = rules[random() % rules.size()];
  settings.limits.precision = std::array{Precision::f32, Precision::bf16}[random() % 2];
  settings.options.executor.stress_delay = std::chrono::microseconds(20);
  if (random() % 2 == 0) settings.options.executor.stress_seed = random();
  return settings;
}

// Whatever the strategy, the slots, the grouping, the eviction rule, the predictor, the precision
// and the timing, the logits are bit for bit those of the plain loop with everything in memory:
// with the reference and with the fast operations, for which weights that stay are arranged and
// others are not.
void expect_equal_runs(const std::string& folder, const std::string& plain_folder, int trials) {
  const TestModel test(folder);
  const TestModel plain(plain_folder);
  std::mt19937_64 random(17);
  for (int trial = 0; trial < trials; ++trial) {
    const Texts texts = random_texts(random, 1 + random() % 6, test.description.vocabulary);
    const Settings settings = random_settings(random, test.description);
    const Processor& ops = trial % 2 == 0 ? reference_processor() : cpu_processor();
    const std::vector<Logits> expected = run_resident(plain, texts, settings.limits.precision, ops);
    SCOPED_TRACE(std::string(strategy_name(*settings.limits.strategy)));
    PreparedModel prepared = test.prepare(settings.limits, texts.workload(), settings.options, ops);
    ASSERT_EQ(run_pipeline(prepared.pipeline(), texts, random), expected) << "trial " << trial;
  }
}

class PipelineEquals : public ::testing::TestWithParam<const char*> {};

TEST_P(PipelineEquals, TheResidentRunBitForBit) {
  expect_equal_runs(test_model(GetParam()), plain_model(GetParam()), 12);
}

INSTANTIATE_TEST_SUITE_P(Families, PipelineEquals,
                         ::testing::Values("mixtral", "qwen2_moe", "qwen3_moe", "olmoe", "gpt_oss",
                                           "llama4_text", kCompact, kDrill));
INSTANTIATE_TEST_SUITE_P(Latent, PipelineEquals,
                         ::testing::Values("deepseek_v2", "deepseek_v3",
                                           "variants/deepseek_v2_yarn_groups",
                                           "variants/deepseek_v3_uneven"));
INSTANTIATE_TEST_SUITE_P(GatedDeltaNet, PipelineEquals,
                         ::testing::Values("variants/qwen3_next", "variants/qwen3_next_bias_dense",
                                           "variants/qwen3_next_uneven",
                                           "variants/qwen3_next_states_alone"));
INSTANTIATE_TEST_SUITE_P(Quantised, PipelineEquals,
                         ::testing::Values(kFp8, kFp8Latent, kInt4, kGptq, kAwq));
// Layers that are not routed, windows, tied embeddings, clipped and biased projections.
INSTANTIATE_TEST_SUITE_P(Variants, PipelineEquals,
                         ::testing::Values("variants/qwen2_no_bias_sparse_step",
                                           "variants/qwen2_windows_dense",
                                           "variants/qwen3_dense_bias", "variants/qwen3_window",
                                           "variants/mixtral_tied_gelu", "variants/olmoe_clip_bias",
                                           "variants/gpt_oss_no_bias", "variants/gpt_oss_mxfp4",
                                           "variants/llama4_chunks_dense",
                                           "variants/llama4_no_norm"));
INSTANTIATE_TEST_SUITE_P(
    GroupedHeads, PipelineEquals,
    ::testing::Values("variants/arctic", "variants/arctic_dense_layers", "variants/dbrx_clip",
                      "variants/ernie_interval_least_sum", "variants/glm4_bias_dense",
                      "variants/glm4_head_norm_groups", "variants/granite_factors_bias",
                      "variants/hunyuan_bias_layers", "variants/minimax_partial",
                      "variants/phimoe_biases_window"));

class SpillingPipelineEquals : public ::testing::TestWithParam<const char*> {};

// With room in memory for one sequence or two, the other sequences' keys and values lie in a file.
TEST_P(SpillingPipelineEquals, TheResidentRunBitForBit) {
  const TestModel test(test_model(GetParam()));
  std::mt19937_64 random(29);
  int64_t spilled = 0;
  for (int trial = 0; trial < 6; ++trial) {
    const Texts texts = random_texts(random, 2 + random() % 6, test.description.vocabulary, 40);
    Settings settings = random_settings(random, test.description);
    const std::vector<Logits> expected = run_resident(test, texts, settings.limits.precision);
    settings.options.spill_folder = ::testing::TempDir();
    settings.limits.kv_bytes =
        (1 + random() % 2) *
        sequence_cache_bytes(test.description, settings.limits.precision, texts.longest());
    SCOPED_TRACE(std::string(strategy_name(*settings.limits.strategy)));
    PreparedModel prepared = test.prepare(settings.limits, texts.workload(), settings.options);
    ASSERT_EQ(run_pipeline(prepared.pipeline(), texts, random, &spilled), expected)
        << "trial " << trial;
  }
  EXPECT_GT(spilled, 5);
}

INSTANTIATE_TEST_SUITE_P(
    Families, SpillingPipelineEquals,
    ::testing::Values("mixtral", "qwen2_moe", "qwen3_moe", "olmoe", "deepseek_v3",
                      "variants/deepseek_v2_uneven", "variants/qwen3_next",
                      "variants/qwen3_next_uneven", "variants/qwen3_next_states_alone",
                      "variants/qwen2_windows_dense", "variants/qwen3_dense_bias", "gpt_oss",
                      "variants/llama4_chunks_dense", "variants/arctic", "variants/dbrx_clip"));

// No tensor is aligned: all of them have to be settled.
TEST(UnalignedPipelineEquals, TheResidentRunBitForBit) {
  const std::filesystem::path folder =
      std::filesystem::path(::testing::TempDir()) / ("unaligned" + std::to_string(::getpid()));
  std::filesystem::remove_all(folder);
  std::filesystem::copy(test_model("qwen3_moe"), folder);
  testing_files::unalign_tensors(folder / "model.safetensors");
  {
    const TestModel test(folder);
    const UnitLayouts layouts(test.description, test.checkpoint);
    ASSERT_TRUE(layouts.of(attention_unit(LayerId(0))).must_settle());
  }
  expect_equal_runs(folder, folder, 12);
  std::filesystem::remove_all(folder);
}

// Where every expert is in memory, a layer's experts wait for nothing, so they need not run one by
// one. Their span names no expert in particular.
TEST(PipelineJoins, ExpertsThatAreThere) {
  const TestModel test(test_model("mixtral"));
  std::mt19937_64 random(5);
  const Texts texts = random_texts(random, 4, test.description.vocabulary);
  for (const Strategy strategy : {Strategy::simple, Strategy::klotski}) {
    Settings settings;
    settings.limits.strategy = strategy;
    settings.options.keep_spans = 10000;
    PreparedModel prepared = test.prepare(settings.limits, texts.workload(), settings.options);
    run_pipeline(prepared.pipeline(), texts, random);
    const std::vector<TimelineSpan> spans = prepared.pipeline().timeline().spans();
    EXPECT_TRUE(std::any_of(spans.begin(), spans.end(), [](const TimelineSpan& span) {
      return span.is_expert_work && span.expert < 0;
    })) << strategy_name(strategy);
  }
}

}  // namespace
}  // namespace klotski
