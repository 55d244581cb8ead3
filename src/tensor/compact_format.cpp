// BF16_COMPACT as a stored format.

#include <algorithm>
#include <cstring>
#include <vector>

#include "tensor/compact.h"
#include "tensor/format.h"
#include "tensor/tensor_view.h"

namespace klotski {

namespace {

void expand_compact_row(const TensorView& matrix, int64_t row, std::byte* out) {
  expand_row(matrix.data + row * matrix.stride(), matrix.columns_of_row(), matrix.first_column,
             std::span(reinterpret_cast<uint16_t*>(out), static_cast<size_t>(matrix.columns())));
}

bool pack_compact_row(const std::byte* numbers, int64_t columns, std::byte* row) {
  return compact_row(
      std::span(reinterpret_cast<const uint16_t*>(numbers), static_cast<size_t>(columns)), row);
}

}  // namespace

const WeightFormat& compact_format() {
  static const WeightFormat kFormat = {
      .name = "BF16_COMPACT",
      .values = DType::BF16,
      .file_name = {.drop = "", .add = ".compact"},
      .file_type = DType::U8,
      .block_columns = kCompactBlock,
      .block_bytes = kCompactBlockBytes,
      .pads_last_block = true,
      .most_columns = kMostCompactColumns,
      .header_bytes = compact_header_bytes,
      .alignment = kCompactAlignment,
      .sides = {},
      // Numbers from 2^-31 to 1: the least upper bits of a row, and none or one number that it
      // lists.
      .noise = {0x81FFFFFF0001FF07u, 0x3C00000000000030u},
      .expand = expand_compact_row,
      .pack = pack_compact_row,
  };
  return kFormat;
}

}  // namespace klotski
