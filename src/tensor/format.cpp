#include "tensor/format.h"

#include <fmt/format.h>

#include <array>
#include <cstring>

#include "base/error.h"
#include "tensor/block_formats.h"
#include "tensor/checkpoint_formats.h"
#include "tensor/compact.h"
#include "tensor/hqq.h"
#include "tensor/tensor_view.h"

namespace klotski {

namespace {

constexpr size_t kFileFormats = kFileDTypeCount;

void copy_row(const TensorView& matrix, int64_t row, std::byte* out) {
  std::memcpy(out, matrix.data + row * matrix.stride(),
              static_cast<size_t>(bytes_per_row(matrix.dtype, matrix.columns())));
}

bool is_multiplied(DType dtype) {
  return dtype == DType::F32 || dtype == DType::F16 || dtype == DType::BF16;
}

NoiseBits noise_of(DType dtype) {
  if (dtype == DType::F16) return {0x87FF87FF87FF87FFu, 0x2000200020002000u};
  if (dtype == DType::BF16) return {0x81FF81FF81FF81FFu, 0x3C003C003C003C00u};
  return {};
}

// Elements one after the other, as files have them.
WeightFormat plain_format(DType dtype) {
  const int bits = bits_per_element(dtype);
  const int64_t together = bits % 8 == 0 ? 1 : bits == 4 ? 2 : 4;  // elements in whole bytes
  WeightFormat format{.name = dtype_name(dtype),
                      .values = dtype,
                      .file_name = {},
                      .file_type = dtype,
                      .block_columns = together,
                      .block_bytes = together * bits / 8,
                      .alignment = static_cast<uint64_t>(bits % 8 == 0 ? bits / 8 : 1),
                      .sides = {},
                      .noise = noise_of(dtype)};
  format.may_be_arranged = is_multiplied(dtype);
  if (is_multiplied(dtype)) format.expand = copy_row;
  return format;
}

struct FormatTable {
  std::array<WeightFormat, kFileFormats> plain;
  std::array<const WeightFormat*, kMostDTypes> formats{};
  int count = 0;

  FormatTable() {
    for (size_t i = 0; i < plain.size(); ++i) {
      plain[i] = plain_format(static_cast<DType>(i));
      add(plain[i]);
    }
    add(compact_format());  // in the order of DType
    for (const WeightFormat& format : block_formats()) add(format);
    for (const WeightFormat& format : hqq_formats()) add(format);
    for (const CheckpointFormat& row : checkpoint_formats()) add(row.format);
  }
  DType add(const WeightFormat& format) {
    if (static_cast<size_t>(count) == formats.size()) {
      fail(ErrorKind::internal, "no more than {} formats have room", formats.size());
    }
    formats[static_cast<size_t>(count)] = &format;
    return static_cast<DType>(count++);
  }
};

FormatTable& format_table() {
  static FormatTable table;
  return table;
}

bool set_bytes(StoredPart& part) { return byte_count(part.shape, part.dtype, &part.bytes); }

}  // namespace

std::string StoredName::of(std::string_view matrix) const {
  if (matrix.ends_with(drop)) matrix.remove_suffix(drop.size());
  return std::string(matrix) + std::string(add);
}

Shape SideTensor::shape(const Shape& matrix) const {
  const auto blocks = [](int64_t count, int64_t block) {
    return count / block + (count % block == 0 ? 0 : 1);
  };
  const int64_t rows = blocks(matrix.at(0), block_rows);
  const int64_t columns = blocks(matrix.at(1), block_columns);
  return transposed ? Shape{columns, rows} : Shape{rows, columns};
}

int64_t SideTensor::row_bytes(int64_t matrix_columns) const {
  return bytes_per_row(dtype, (matrix_columns + block_columns - 1) / block_columns);
}

const WeightFormat& format_of(DType dtype) {
  const FormatTable& table = format_table();
  if (static_cast<int>(dtype) >= table.count) {
    fail(ErrorKind::internal, "type {} has no format", static_cast<int>(dtype));
  }
  return *table.formats[static_cast<size_t>(dtype)];
}

int format_count() { return format_table().count; }

DType add_format(const WeightFormat& format) {
  if (format.sides.size() > kMostSideTensors || is_packed(format.file_type) || !format.expand ||
      !is_multiplied(format.values)) {
    fail(ErrorKind::internal, "the format {} is not one that weights can be of", format.name);
  }
  return format_table().add(format);
}

std::string why_not_packed(const WeightFormat& format, const Shape& shape) {
  if (format.is_file_type ? shape.empty() : shape.size() != 2) {
    return fmt::format("expected a {}, found {}", format.is_file_type ? "row" : "matrix",
                       format_shape(shape));
  }
  const int64_t columns = shape.back();
  if (columns < 0 || columns > format.most_columns) {
    return fmt::format("columns: expected at most {}, found {}", format.most_columns, columns);
  }
  if (!format.pads_last_block && columns % format.block_columns != 0) {
    return fmt::format("columns: expected a multiple of {}, found {}", format.block_columns,
                       columns);
  }
  if (const int64_t rows = shape.front(); rows % format.block_rows != 0) {
    return fmt::format("rows: expected a multiple of {}, found {}", format.block_rows, rows);
  }
  return "";
}

std::vector<StoredPart> stored_parts(DType dtype, const Shape& shape) {
  const WeightFormat& format = format_of(dtype);
  StoredPart main{format.file_name, format.is_file_type ? dtype : format.file_type, shape};
  if (is_packed(dtype) && !format.is_file_type) {
    uint64_t checked = 0;  // the arithmetic that follows cannot overflow
    if (!byte_count(shape, dtype, &checked)) return {};
    main.shape =
        format.numbers_shape
            ? format.numbers_shape(shape)
            : Shape{shape[0], format.row_bytes(shape[1]) / bytes_per_element(format.file_type)};
  }
  if (!set_bytes(main)) return {};
  std::vector<StoredPart> parts = {std::move(main)};
  for (const SideTensor& side : format.sides) {
    StoredPart part{side.name, side.dtype, side.shape(shape)};
    if (!set_bytes(part)) return {};
    parts.push_back(std::move(part));
  }
  return parts;
}

}  // namespace klotski
