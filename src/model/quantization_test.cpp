// Quantised checkpoints: what config.json states, and the tensors of a matrix in each format.

#include "model/quantization.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <optional>

#include "model/config.h"
#include "model/stored_tensors.h"
#include "model/unit_layout.h"
#include "tensor/checkpoint_formats.h"
#include "weights/checkpoint.h"
#include "weights/checkpoint_writer.h"
#include "weights/testing.h"

namespace klotski {
namespace {

using testing_files::ScratchFolder;

std::string refusal_in(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::bad_model);
    return error.what();
  }
  return "";
}

std::vector<DType> formats_of(const std::string& quantization) {
  const Json json = parse_json("{\"quantization_config\":" + quantization + "}", "f");
  return stated_formats(JsonFields(json, "config.json"));
}

std::vector<std::string> names_of(const std::string& quantization) {
  std::vector<std::string> names;
  for (const DType type : formats_of(quantization)) names.emplace_back(dtype_name(type));
  return names;
}

std::string config_refusal(const std::string& quantization) {
  return refusal_in([&] { formats_of(quantization); });
}

using Names = std::vector<std::string>;

TEST(Quantization, ConfigStatesTheFormats) {
  const Json plain = parse_json("{\"quantization_config\":null}", "f");
  EXPECT_TRUE(stated_formats(JsonFields(plain, "config.json")).empty());
  EXPECT_EQ(names_of(R"({"quant_method":"fp8","fmt":"e4m3","weight_block_size":[128,128],
                         "activation_scheme":"dynamic","modules_to_not_convert":["lm_head"]})"),
            (Names{"FP8_E4M3_F32", "FP8_E4M3_BF16"}));
  EXPECT_EQ(names_of(R"({"quant_method":"gptq","bits":4,"group_size":128,"desc_act":false})"),
            Names{"GPTQ4_G128"});
  EXPECT_EQ(names_of(R"({"quant_method":"gptq","bits":4,"group_size":-1,"sym":true,
                         "checkpoint_format":"gptq_v2"})"),
            Names{"GPTQ4_V2_ROW"});
  EXPECT_EQ(names_of(R"({"quant_method":"awq","bits":4,"group_size":64,"version":"gemm",
                         "zero_point":true})"),
            Names{"AWQ4_G64"});
  EXPECT_EQ(names_of(R"({"quant_method":"mxfp4","modules_to_not_convert":["x"]})"),
            Names{"MXFP4_SPLIT"});
}

TEST(Quantization, CompressedTensorsMayHaveSeveralGroups) {
  EXPECT_EQ(names_of(R"({"quant_method":"compressed-tensors","format":"pack-quantized",
      "config_groups":{"group_0":{"targets":["Linear"],"weights":{"num_bits":4,"type":"int",
        "strategy":"group","group_size":32,"symmetric":true,"actorder":null}},
      "group_1":{"weights":{"num_bits":4,"type":"int","strategy":"channel","symmetric":false,
        "actorder":"weight","group_size":null}}},"ignore":["lm_head"]})"),
            (Names{"INT4_G32_BF16", "INT4_G32_F16", "INT4_ZP_ROW_BF16", "INT4_ZP_ROW_F16"}));
}

TEST(Quantization, TheRestIsRefusedByName) {
  const auto expect = [](const std::string& quantization, const std::string& text) {
    const std::string error = config_refusal(quantization);
    EXPECT_NE(error.find(text), std::string::npos) << error;
  };
  expect(R"({"quant_method":"bitsandbytes","load_in_4bit":true})",
         "quantization_config.quant_method: expected one of fp8, gptq, awq, compressed-tensors, "
         "mxfp4; use a checkpoint of one of these, found 'bitsandbytes'");
  expect(R"({"bits":4})", "quant_method: expected a string, found nothing");
  expect(R"("gptq")", "quantization_config: expected an object");
  expect(R"({"quant_method":"fp8"})", "weight_block_size: expected [128, 128]");
  expect(R"({"quant_method":"fp8","weight_block_size":[64,128]})", "weight_block_size");
  expect(R"({"quant_method":"fp8","weight_block_size":[128,128],"fmt":"e5m2"})",
         "fmt: expected e4m3, found 'e5m2'");
  expect(R"({"quant_method":"gptq","bits":8})", "bits: expected 4");
  expect(R"({"quant_method":"gptq"})", "bits: expected an integer");
  expect(R"({"quant_method":"gptq","bits":4,"desc_act":true})", "desc_act: expected false");
  expect(R"({"quant_method":"gptq","bits":4,"checkpoint_format":"marlin"})",
         "checkpoint_format: expected gptq or gptq_v2, found 'marlin'");
  expect(R"({"quant_method":"gptq","bits":4,"is_marlin_format":true})", "is_marlin_format");
  expect(R"({"quant_method":"gptq","bits":4,"pack_dtype":"int64"})", "pack_dtype: expected int32");
  expect(R"({"quant_method":"gptq","bits":4,"group_size":100})",
         "group_size: expected 32, 64, 128 or -1 (one scale a row), found 100");
  expect(R"({"quant_method":"awq","bits":4,"group_size":0})", "group_size");
  expect(R"({"quant_method":"awq","bits":4,"version":"gemv"})", "version: expected gemm");
  expect(R"({"quant_method":"awq","bits":4,"zero_point":false})", "zero_point: expected true");
}

TEST(Quantization, OtherCompressedTensorsAreRefusedByName) {
  const auto expect = [](const std::string& weights, const std::string& text) {
    const std::string error =
        config_refusal(R"({"quant_method":"compressed-tensors","format":"pack-quantized",
                    "config_groups":{"group_0":{"weights":)" +
                       weights + "}}}");
    EXPECT_NE(error.find(text), std::string::npos) << error;
  };
  expect(R"({"num_bits":8,"type":"int","strategy":"group"})", "group_0.weights.num_bits");
  expect(R"({"num_bits":4,"type":"float","strategy":"group"})", "weights.type: expected int");
  expect(R"({"num_bits":4,"type":"int","strategy":"tensor"})", "strategy: expected group or");
  expect(R"({"num_bits":4,"type":"int","strategy":"group","actorder":"group"})", "actorder");
  expect("null", "group_0.weights: expected an object");
  const auto refuses = [](const std::string& quantization, const std::string& text) {
    const std::string error = config_refusal(quantization);
    EXPECT_NE(error.find(text), std::string::npos) << error;
  };
  refuses(R"({"quant_method":"compressed-tensors","format":"int-quantized"})",
          "format: expected pack-quantized, found 'int-quantized'");
  refuses(R"({"quant_method":"compressed-tensors","format":"pack-quantized"})", "config_groups");
  refuses(R"({"quant_method":"compressed-tensors","format":"pack-quantized","config_groups":{}})",
          "config_groups: expected an object of at least one group");
  refuses(R"({"quant_method":"compressed-tensors","format":"pack-quantized",
              "config_groups":{"a\nb":{}}})",
          "config_groups: expected groups named by letters");
  refuses(R"({"quant_method":"compressed-tensors","format":"pack-quantized",
              "sparsity_config":{"format":"sparse-24-bitmask"}})",
          "sparsity_config.format: expected dense");
}

Checkpoint source_of(const std::vector<NewTensor>& tensors) {
  std::vector<TensorEntry> entries;
  for (const NewTensor& tensor : tensors) {
    TensorEntry& entry = entries.emplace_back();
    entry.name = tensor.name;
    entry.dtype = tensor.dtype;
    entry.shape = tensor.shape;
  }
  return Checkpoint::described("model", std::move(entries));
}

const TensorSpec kMatrix = {Role::query, "q.weight", {16, 256}};

StoredTensor found_in(const std::vector<NewTensor>& tensors, const std::vector<DType>& stated,
                      const TensorSpec& spec = kMatrix) {
  return find_stored(source_of(tensors), UnitKind::attention, spec, stated);
}

TEST(Quantization, AMatrixIsFoundInTheFormatOfItsTensors) {
  const std::vector<DType> fp8 = checkpoint_types(CheckpointMethod::fp8, 128);
  const NewTensor codes = {"q.weight", DType::F8_E4M3, {16, 256}};
  EXPECT_EQ(found_in({codes, {"q.weight_scale_inv", DType::F32, {1, 2}}}, fp8).dtype, fp8[0]);
  const StoredTensor bf16 = found_in({codes, {"q.weight_scale_inv", DType::BF16, {1, 2}}}, fp8);
  EXPECT_EQ(bf16.dtype, fp8[1]);
  ASSERT_EQ(bf16.sides.size(), 1u);
  EXPECT_EQ(bf16.numbers.bytes, 16u * 256);
  EXPECT_EQ(bf16.sides[0].bytes, 4u);
  // A matrix that the configuration leaves as it was.
  EXPECT_EQ(found_in({{"q.weight", DType::BF16, {16, 256}}}, fp8).dtype, DType::BF16);
  // Without the configuration's word the format does not count.
  EXPECT_NE(refusal_in([&] { found_in({codes}, {}); }).find("found F8_E4M3"), std::string::npos);

  std::vector<DType> int4 = checkpoint_types(CheckpointMethod::int4, 128);
  const std::vector<DType> smaller = checkpoint_types(CheckpointMethod::int4, 32);
  int4.insert(int4.end(), smaller.begin(), smaller.end());
  const NewTensor packed = {"q.weight_packed", DType::I32, {16, 32}};
  EXPECT_EQ(found_in({packed, {"q.weight_scale", DType::F16, {16, 8}}}, int4).dtype, smaller[1]);
  EXPECT_EQ(found_in({packed, {"q.weight_scale", DType::BF16, {16, 2}}}, int4).dtype, int4[0]);
}

// Zero points belong to a matrix that has them, whichever group the configuration names first.
TEST(Quantization, SymmetricAndAsymmetricGroupsOfOneSizeAreToldApart) {
  const std::vector<DType> plain = checkpoint_types(CheckpointMethod::int4, 128);
  const std::vector<DType> with_zeros = checkpoint_types(CheckpointMethod::int4_zero_points, 128);
  const NewTensor packed = {"q.weight_packed", DType::I32, {16, 32}};
  const NewTensor scales = {"q.weight_scale", DType::BF16, {16, 2}};
  const NewTensor zeros = {"q.weight_zero_point", DType::I32, {2, 2}};
  for (const bool plain_first : {true, false}) {
    std::vector<DType> both = plain_first ? plain : with_zeros;
    const std::vector<DType>& others = plain_first ? with_zeros : plain;
    both.insert(both.end(), others.begin(), others.end());
    EXPECT_EQ(found_in({packed, scales}, both).dtype, plain[0]);
    EXPECT_EQ(found_in({packed, scales, zeros}, both).dtype, with_zeros[0]);
  }
}

TEST(Quantization, SideTensorsThatAreMissingOrOddAreNamed) {
  const std::vector<DType> gptq = checkpoint_types(CheckpointMethod::gptq, 128);
  const auto error_with = [&](const std::vector<NewTensor>& tensors) {
    return refusal_in([&] { found_in(tensors, gptq); });
  };
  const NewTensor words = {"q.qweight", DType::I32, {32, 16}};
  const NewTensor scales = {"q.scales", DType::F16, {2, 16}};
  const NewTensor zeros = {"q.qzeros", DType::I32, {2, 2}};
  EXPECT_EQ(error_with({words, scales, zeros}), "");
  EXPECT_NE(error_with({words, zeros}).find("expected a tensor 'q.scales'"), std::string::npos);
  EXPECT_NE(error_with({words, scales}).find("expected a tensor 'q.qzeros'"), std::string::npos);
  EXPECT_NE(error_with({words, scales, {"q.qzeros", DType::I32, {2, 16}}})
                .find("tensor 'q.qzeros': config.json implies I32 of shape [2, 2], found I32 of "
                      "shape [2, 16]"),
            std::string::npos);
  EXPECT_NE(error_with({words, {"q.scales", DType::F32, {2, 16}}, zeros})
                .find("implies F16 of shape [2, 16], found F32"),
            std::string::npos);
  // AWQ's shape under GPTQ's configuration.
  EXPECT_NE(error_with({{"q.qweight", DType::I32, {256, 2}}, scales, zeros})
                .find("tensor 'q.qweight': config.json implies I32 of shape [32, 16]"),
            std::string::npos);
  EXPECT_NE(error_with({words, scales, zeros, {"q.weight", DType::BF16, {16, 256}}})
                .find("expected it once"),
            std::string::npos);
  EXPECT_NE(refusal_in([&] {
              found_in({words}, gptq, {Role::query, "q.weight", {12, 256}});
            }).find("cannot be GPTQ4_G128: rows: expected a multiple of 8, found 12"),
            std::string::npos);
}

// Gate and up as every second row of a fused tensor, as gpt-oss has them.
TEST(Quantization, AnExpertIsASliceOfFusedBlocksAndScales) {
  const std::vector<DType> stated = checkpoint_types(CheckpointMethod::mxfp4, 32);
  const std::vector<NewTensor> tensors = {{"e_blocks", DType::U8, {3, 8, 2, 16}},
                                          {"e_scales", DType::U8, {3, 8, 2}}};
  const auto spec = [](bool interleaved) {
    return TensorSpec{
        Role::expert_up,
        "e",
        {4, 64},
        StoredSlice{
            .matrices = 3, .index = 2, .rows = 8, .first_row = 4, .interleaved = interleaved}};
  };
  const Checkpoint source = source_of(tensors);
  const auto begin = [&](const char* name) { return source.require(name).offset; };
  const StoredTensor up = find_stored(source, UnitKind::expert, spec(true), stated);
  EXPECT_EQ(up.numbers, (StoredRange{0, begin("e_blocks") + 2 * 256, 256, {{4, 2, 32}}}));
  EXPECT_EQ(up.first_byte, 128u);
  EXPECT_EQ(up.sides, std::vector<StoredRange>({{0, begin("e_scales") + 2 * 16, 16, {{4, 2, 2}}}}));
  EXPECT_EQ(up.first_row, 4);
  const StoredTensor second = find_stored(source, UnitKind::expert, spec(false), stated);
  EXPECT_EQ(second.numbers, (StoredRange{0, begin("e_blocks") + 2 * 256 + 128, 128}));
  EXPECT_EQ(second.sides, std::vector<StoredRange>({{0, begin("e_scales") + 2 * 16 + 8, 8}}));
  EXPECT_EQ(second.first_row, 0);
}

TEST(Quantization, TransposedMatricesAreTensorsOfTheirOwn) {
  const std::vector<DType> awq = checkpoint_types(CheckpointMethod::awq, 32);
  const Checkpoint source = source_of({{"e.qweight", DType::I32, {2, 64, 2}},
                                       {"e.scales", DType::F16, {2, 2, 16}},
                                       {"e.qzeros", DType::I32, {2, 2, 2}}});
  TensorSpec spec{Role::expert_up, "e.weight", {16, 64}, StoredSlice{2, 1, 16, 0}};
  const StoredTensor second = find_stored(source, UnitKind::expert, spec, awq);
  EXPECT_EQ(second.numbers.offset, source.require("e.qweight").offset + 512);
  EXPECT_EQ(second.numbers.bytes, 512u);
  EXPECT_EQ(second.sides[0].bytes, 64u);
  spec.shape = {8, 64};
  EXPECT_NE(refusal_in([&] {
              find_stored(source, UnitKind::expert, spec, awq);
            }).find("expected a tensor for each matrix of AWQ4_G32"),
            std::string::npos);
}

// A checkpoint whose only tensor lists the group of each column.
std::string error_of_groups(const std::string& name, const std::vector<int32_t>& groups) {
  const ScratchFolder home;
  write_checkpoint(
      home.path(), {{name, DType::I32, {static_cast<int64_t>(groups.size())}}},
      [&](size_t, uint64_t offset, std::span<std::byte> out) {
        std::memcpy(out.data(), reinterpret_cast<const std::byte*>(groups.data()) + offset,
                    out.size());
      },
      [](uint64_t) {});
  const std::vector<DType> gptq = checkpoint_types(CheckpointMethod::gptq, 32);
  const Checkpoint source = Checkpoint::open(home.path());
  check_column_order(source, {});
  return refusal_in([&] { check_column_order(source, gptq); });
}

TEST(Quantization, ColumnsAreInGroupsInTheirOwnOrder) {
  std::vector<int32_t> groups(80);
  for (size_t i = 0; i < groups.size(); ++i) groups[i] = static_cast<int32_t>(i / 32);
  EXPECT_EQ(error_of_groups("q.g_idx", groups), "");
  EXPECT_NE(error_of_groups("q.weight_g_idx", groups).find("tensor 'q.weight_g_idx': expected"),
            std::string::npos);
  groups[5] = 1;
  EXPECT_NE(error_of_groups("q.g_idx", groups).find("found column 5 in group 1"),
            std::string::npos);
  groups[5] = -1;
  EXPECT_NE(error_of_groups("q.g_idx", groups).find("found column 5 in group -1"),
            std::string::npos);
}

}  // namespace
}  // namespace klotski
