#include "tensor/checkpoint_formats.h"

#include <fmt/format.h>

namespace klotski {

namespace {

// A format whose numbers of four bits lie in words.
WeightFormat words_of_four_bits() {
  WeightFormat format;
  format.file_type = DType::I32;
  format.block_columns = kNumbersInWord;
  format.block_bytes = 4;
  format.alignment = 4;
  format.noise = {~uint64_t{0}, 0};
  return format;
}

std::string group_name(int64_t group) {
  return group == kWholeRow ? "ROW" : fmt::format("G{}", group);
}

// Scales are of the configuration's or the model's type, which the name says.
CheckpointFormat fp8_format(DType scales) {
  CheckpointFormat row{.method = CheckpointMethod::fp8,
                       .group = kFp8Block,
                       .name = fmt::format("FP8_E4M3_{}", dtype_name(scales)),
                       .sides = {{.name = {.drop = ".weight", .add = ".weight_scale_inv"},
                                  .dtype = scales,
                                  .block_rows = kFp8Block,
                                  .block_columns = kFp8Block}},
                       .format = {}};
  row.format.file_type = DType::F8_E4M3;
  row.format.noise = {0x8787878787878787u, 0x3030303030303030u};  // from 1/2 to 1
  row.format.expand = expand_fp8_row;
  return row;
}

CheckpointFormat int4_format(bool zero_points, int64_t group, DType scales) {
  using enum CheckpointMethod;
  CheckpointFormat row{.method = zero_points ? int4_zero_points : int4,
                       .group = group,
                       .name = fmt::format("INT4{}_{}_{}", zero_points ? "_ZP" : "",
                                           group_name(group), dtype_name(scales)),
                       .sides = {{.name = {.drop = ".weight", .add = ".weight_scale"},
                                  .dtype = scales,
                                  .block_rows = 1,
                                  .block_columns = group}},
                       .format = words_of_four_bits()};
  if (zero_points) {
    row.sides.push_back({.name = {.drop = ".weight", .add = ".weight_zero_point"},
                         .dtype = DType::I32,
                         .block_rows = kNumbersInWord,
                         .block_columns = group});
  }
  row.format.file_name = {.drop = ".weight", .add = ".weight_packed"};
  row.format.pads_last_block = true;
  row.format.expand = expand_int4_row;
  return row;
}

Shape gptq_shape(const Shape& matrix) { return {matrix[1] / kNumbersInWord, matrix[0]}; }
Shape awq_shape(const Shape& matrix) { return {matrix[1], matrix[0] / kNumbersInWord}; }
Shape mx_shape(const Shape& matrix) { return {matrix[0], matrix[1] / kMxBlock, kMxBlock / 2}; }

CheckpointFormat transposed_format(CheckpointMethod method, int64_t group) {
  using enum CheckpointMethod;
  const bool awq_order = method == awq;
  const std::string_view name = awq_order ? "AWQ4" : method == gptq ? "GPTQ4" : "GPTQ4_V2";
  CheckpointFormat row{.method = method,
                       .group = group,
                       .name = fmt::format("{}_{}", name, group_name(group)),
                       .sides = {{.name = {.drop = ".weight", .add = ".scales"},
                                  .dtype = DType::F16,
                                  .block_rows = 1,
                                  .block_columns = group,
                                  .transposed = true},
                                 {.name = {.drop = ".weight", .add = ".qzeros"},
                                  .dtype = DType::I32,
                                  .block_rows = kNumbersInWord,
                                  .block_columns = group,
                                  .transposed = true}},
                       .format = words_of_four_bits()};
  row.format.file_name = {.drop = ".weight", .add = ".qweight"};
  row.format.numbers_shape = awq_order ? awq_shape : gptq_shape;
  row.format.transposed = true;
  row.format.block_rows = kNumbersInWord;
  row.format.expand = awq_order        ? expand_awq_row
                      : method == gptq ? expand_gptq_row
                                       : expand_gptq_v2_row;
  return row;
}

CheckpointFormat mx_format() {
  CheckpointFormat row{.method = CheckpointMethod::mxfp4,
                       .group = kMxBlock,
                       .name = "MXFP4_SPLIT",
                       .sides = {{.name = {.drop = "", .add = "_scales"},
                                  .dtype = DType::U8,
                                  .block_rows = 1,
                                  .block_columns = kMxBlock}},
                       .format = {}};
  row.format.file_name = {.drop = "", .add = "_blocks"};
  row.format.file_type = DType::U8;
  row.format.numbers_shape = mx_shape;
  row.format.block_columns = kMxBlock;
  row.format.block_bytes = kMxBlock / 2;
  row.format.noise = {~uint64_t{0}, 0};
  row.format.becomes = DType::MXFP4;
  row.format.join = join_mxfp4_blocks;
  row.format.expand = expand_mxfp4_row;
  return row;
}

std::vector<CheckpointFormat> make_checkpoint_formats() {
  using enum CheckpointMethod;
  std::vector<CheckpointFormat> rows;
  for (const DType scales : {DType::F32, DType::BF16}) rows.push_back(fp8_format(scales));
  for (const int64_t group : {int64_t{32}, int64_t{64}, int64_t{128}, kWholeRow}) {
    for (const DType scales : {DType::BF16, DType::F16}) {
      rows.push_back(int4_format(false, group, scales));
      rows.push_back(int4_format(true, group, scales));
    }
    for (const CheckpointMethod method : {gptq, gptq_v2, awq}) {
      rows.push_back(transposed_format(method, group));
    }
  }
  rows.push_back(mx_format());
  for (CheckpointFormat& row : rows) {  // each row stays where it is from here on
    row.format.name = row.name;
    row.format.sides = row.sides;
    row.format.values = DType::F32;
    row.format.is_stated = true;
    row.format.in_any_unit = true;
    row.format.lossy = true;
  }
  return rows;
}

}  // namespace

std::span<const CheckpointFormat> checkpoint_formats() {
  static const std::vector<CheckpointFormat> kRows = make_checkpoint_formats();
  return kRows;
}

std::vector<DType> checkpoint_types(CheckpointMethod method, int64_t group) {
  std::vector<DType> types;
  for (int i = kFileDTypeCount; i < format_count(); ++i) {
    const CheckpointFormat* row = checkpoint_format(static_cast<DType>(i));
    if (row != nullptr && row->method == method && row->group == group) {
      types.push_back(static_cast<DType>(i));
    }
  }
  return types;
}

const CheckpointFormat* checkpoint_format(DType dtype) {
  const WeightFormat* format = &format_of(dtype);
  for (const CheckpointFormat& row : checkpoint_formats()) {
    if (&row.format == format) return &row;
  }
  return nullptr;
}

}  // namespace klotski
