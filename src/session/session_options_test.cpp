#include "session/session_options.h"

#include <gtest/gtest.h>

#include <memory>

#include "base/testing.h"
#include "device/testing.h"
#include "experts/predictor.h"
#include "kernels/testing.h"
#include "session/testing.h"
#include "weights/testing.h"

namespace klotski {
namespace {

SessionOptions with_limits(const RunLimits& limits) {
  SessionOptions options;
  options.limits = limits;
  return options;
}

TEST(SessionOptionsTest, ContradictionsAreRefused) {
  EXPECT_NO_THROW(check_options({}));
  EXPECT_NE(refusal([] {
              check_options(with_limits({.attention_sinks = 4}));
            }).find("--attention-window"),
            std::string::npos);
  EXPECT_NO_THROW(check_options(with_limits({.attention_sinks = 4, .attention_window = 8})));
  EXPECT_NE(refusal([] {
              check_options(with_limits({.strategy = Strategy::cgopipe, .cpu_attention = false}));
            }).find("cgopipe attends on the CPU"),
            std::string::npos);
}

TEST(SessionOptionsTest, ChoicesHaveNames) {
  EXPECT_EQ(strategy_choice("strategy", "auto"), std::nullopt);
  EXPECT_EQ(strategy_choice("strategy", "simple"), Strategy::simple);
  EXPECT_EQ(strategy_choice("strategy", "hybrid"), Strategy::hybrid);
  EXPECT_EQ(cpu_attention_choice("attention", "auto"), std::nullopt);
  EXPECT_EQ(cpu_attention_choice("attention", "cpu"), true);
  EXPECT_EQ(cpu_attention_choice("attention", "gpu"), false);
  EXPECT_EQ(precision_choice("precision", "f32"), Precision::f32);
  EXPECT_EQ(precision_choice("precision", "bf16"), Precision::bf16);
  EXPECT_EQ(kernels_choice("kernels", "reference"), "reference");
  EXPECT_EQ(refusal([] { strategy_choice("--strategy", "fast"); }),
            "--strategy: expected auto, simple, multi-batch, hot-prefetch, klotski, "
            "activation-aware, predictive, cgopipe or hybrid, found 'fast'");
  EXPECT_EQ(refusal([] { kernels_choice("kernels", ""); }),
            "kernels: expected cpu or reference, found ''");
}

TEST(SessionOptionsTest, OptionsOfAGpuNeedOne) {
  const Target cpu{.ops = reference_processor()};
  testing::HostDevice device;
  const Target gpu{.ops = reference_processor(), .device = &device};
  for (const RunLimits& limits :
       {RunLimits{.strategy = Strategy::hybrid}, RunLimits{.cpu_attention = true},
        RunLimits{.vram_bytes = 1 << 30}}) {
    const SessionOptions options = with_limits(limits);
    EXPECT_NE(refusal([&] { check_options_on_target(options, cpu); }).find("expected a GPU"),
              std::string::npos);
    EXPECT_NO_THROW(check_options_on_target(options, gpu));
    EXPECT_NO_THROW(check_options_on_target(on_cpu(options), cpu));
    EXPECT_EQ(on_cpu(options).device, "cpu");
  }
  EXPECT_EQ(on_cpu(with_limits({.strategy = Strategy::simple})).limits.strategy, Strategy::simple);
}

TEST(SessionOptionsTest, AnAttentionWindowAndQuantisedWeightsAreLosses) {
  const std::vector<DType> plain = weight_types(*testing::tiny_model());
  const std::vector<DType> quantised = {DType::F32, DType::Q4_K};
  EXPECT_TRUE(losses({}, plain).empty());
  EXPECT_EQ(losses({}, quantised), (std::vector<std::string>{"weights quantised as Q4_K"}));
  EXPECT_EQ(losses({.attention_sinks = 2, .attention_window = 30}, plain),
            (std::vector<std::string>{"attention to the first 2 and the last 30 tokens only"}));
}

TEST(SessionOptionsTest, ACorrelationTableMustBeOfTheModelAndThePathLength) {
  const testing_files::ScratchFolder scratch;
  const ModelDescription model = testing::tiny_model()->description;
  SessionOptions options;
  EXPECT_FALSE(read_correlation_table(model, options).has_value());
  options.correlation_file = scratch.path() / "table.json";
  CorrelationTable(routing_shape(model), 1).save(options.correlation_file);
  EXPECT_TRUE(read_correlation_table(model, options).has_value());
  options.limits.path_length = 2;
  EXPECT_NE(refusal([&] { read_correlation_table(model, options); }).find("--path-length is 2"),
            std::string::npos);
  const auto other = open_model(std::string(KLOTSKI_TEST_DATA) + "/models/qwen3_moe");
  EXPECT_NE(refusal([&] { read_correlation_table(other->description, options); }), "");
}

TEST(SessionOptionsTest, APredictorBeginsWithTheStateOfItsFile) {
  const testing_files::ScratchFolder scratch;
  const ModelDescription model = testing::tiny_model()->description;
  const RoutingTraceShape shape = routing_shape(model);
  SessionOptions options;
  EXPECT_EQ(read_predictor(model, options, Strategy::klotski).name, "correlation");
  EXPECT_EQ(read_predictor(model, options, Strategy::predictive).name, "token");

  options.activation_file = scratch.path() / "eamc.json";
  const auto read = [&] { return read_predictor(model, options, Strategy::klotski); };
  options.predictor = "correlation";
  EXPECT_NE(refusal(read).find("--predictor activation-aware"), std::string::npos);
  options.predictor.clear();
  const PredictorChoice fresh = read();  // the file does not exist yet
  EXPECT_EQ(fresh.name, "activation-aware");
  EXPECT_EQ(fresh.history->decode.size(), 0);
  ActivationMatrix request(shape);
  request.count(0, std::vector{ExpertId(1), ExpertId(1)});
  fresh.history->decode.add(request);
  fresh.history->save(options.activation_file);
  EXPECT_EQ(read().history->decode.size(), 1);

  options = SessionOptions();
  options.predictor = "path";
  EXPECT_NE(refusal(read).find("--predictor-file"), std::string::npos);
  options.predictor_file = scratch.path() / "network";
  PathNetwork({.routing = shape}).save(options.predictor_file);
  EXPECT_NE(read().network, nullptr);
  const auto other = open_model(std::string(KLOTSKI_TEST_DATA) + "/models/qwen3_moe");
  EXPECT_NE(refusal([&] { read_predictor(other->description, options, Strategy::klotski); }), "");
}

TEST(SessionOptionsTest, TheTargetIsChosenByName) {
  EXPECT_EQ(open_target("cpu", "cpu", {}).target.device, nullptr);
  EXPECT_NE(refusal([] { open_target("neither", "cpu", {}); }).find("auto, cpu, gpu"),
            std::string::npos);
  EXPECT_NE(refusal([] { open_target("gpu", "reference", {}); }).find("computes on the CPU"),
            std::string::npos);
}

}  // namespace
}  // namespace klotski
