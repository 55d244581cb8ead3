#include "model/quantization_record.h"

#include <gtest/gtest.h>

#include "model/config.h"
#include "weights/checkpoint.h"
#include "weights/testing.h"

namespace klotski {
namespace {

using namespace testing_files;

TEST(QuantizationRecord, ComesBackFromItsFile) {
  const ScratchFolder scratch;
  EXPECT_TRUE(read_quantization_record(scratch.path()).errors.empty());
  EXPECT_TRUE(read_quantization_record(scratch.path() / "none").errors.empty());
  const QuantizationRecord record{{{"a \"b\"", 0.1}, {"c", 1.0 / 3}}};
  write_file(scratch.path() / kQuantizationFile, record.as_text());
  EXPECT_EQ(read_quantization_record(scratch.path()).errors, record.errors);
}

TEST(QuantizationRecord, OthersAreRefused) {
  const ScratchFolder scratch;
  for (const char* text : {"", "[]", "{}", R"({"version": 2, "relative_errors": {}})",
                           R"({"version": 1})", R"({"version": 1, "relative_errors": []})",
                           R"({"version": 1, "relative_errors": {"a": -1}})",
                           R"({"version": 1, "relative_errors": {"a": "b"}})",
                           R"({"version": 1, "relative_errors": {"a": 1e300}})"}) {
    write_file(scratch.path() / kQuantizationFile, text);
    EXPECT_TRUE(contains(error_of([&] { read_quantization_record(scratch.path()); }),
                         std::string(kQuantizationFile)))
        << text;
  }
}

TEST(QuantizationRecord, IsSummedUpByLayerAndRole) {
  const std::filesystem::path folder = std::filesystem::path(KLOTSKI_MODELS) / "tiny-mixtral";
  const ModelDescription model = read_config(folder);
  const Checkpoint checkpoint = Checkpoint::open(folder);
  const UnitLayouts layouts(model, checkpoint);
  EXPECT_TRUE(errors_by_layer(model, layouts, {}).empty());
  const std::string experts = "model.layers.2.block_sparse_moe.experts.";
  const QuantizationRecord record{{{experts + "0.w1.weight", 0.1},
                                   {experts + "5.w1.weight", 0.3},
                                   {experts + "5.w2.weight", 0.5},
                                   {"model.layers.4.self_attn.q_proj.weight", 0.7},
                                   {"of another model", 9.0}}};
  const std::vector<LayerErrors> layers = errors_by_layer(model, layouts, record);
  ASSERT_EQ(layers.size(), 2u);
  EXPECT_EQ(layers[0].layer, LayerId(2));
  ASSERT_EQ(layers[0].roles.size(), 2u);
  const ErrorSummary& gate = layers[0].roles.at(Role::expert_gate);
  EXPECT_EQ(gate.tensors, 2);
  EXPECT_DOUBLE_EQ(gate.mean(), 0.2);
  EXPECT_DOUBLE_EQ(gate.worst, 0.3);
  EXPECT_EQ(layers[0].roles.at(Role::expert_down).tensors, 1);
  EXPECT_EQ(layers[0].bytes, 3 * checkpoint.require(experts + "0.w1.weight").bytes);
  EXPECT_EQ(layers[0].weights, 3 * 192 * 256);
  EXPECT_EQ(layers[1].layer, LayerId(4));
  EXPECT_DOUBLE_EQ(layers[1].roles.at(Role::query).worst, 0.7);
}

}  // namespace
}  // namespace klotski
