#include <algorithm>

#include "kernels/cpu/multiply.h"
#include "kernels/reference/weight_row.h"

namespace klotski::cpu {

namespace {

void add_bias(std::span<float* const> out, const TensorView& bias, int64_t first, int64_t count) {
  for (int64_t n = 0; n < count; ++n) {
    const float offset = reference::load_element(bias, first + n);
    for (float* row : out) row[first + n] += offset;
  }
}

}  // namespace

void matmul(const Machine& with, Rows out, ConstRows in, const TensorView& weight,
            const TensorView& bias, Precision precision) {
  const WeightMatrix matrix(weight);
  const Products& products = products_for(with.kernels, matrix.type, precision);
  for (int64_t first_row = 0; first_row < in.count; first_row += kStripRows) {
    const int64_t rows = std::min(kStripRows, in.count - first_row);
    const auto in_rows = row_pointers(in, {}, first_row, rows);
    const auto out_rows = row_pointers(out, {}, first_row, rows);
    std::byte* blocks =
        scratch(ScratchUse::inputs, blocks_of(rows) * products.block_bytes(in.width));
    share_out(with, blocks_of(rows), kBlockRows * in.width, [&](int64_t first, int64_t last) {
      pack_blocks(products, blocks, in_rows, in.width, first, last);
    });
    const int64_t width = strip_outputs(with, out.width);
    const int64_t strips = (out.width + width - 1) / width;
    share_out(with, strips, rows * in.width * width, [&](int64_t first, int64_t last) {
      for (int64_t strip = first; strip < last; ++strip) {
        const int64_t begin = strip * width;
        const int64_t count = std::min(width, out.width - begin);
        products.multiply(strip_of({out_rows, begin, begin, count}, blocks, matrix));
        if (bias.data) add_bias(out_rows, bias, begin, count);
      }
    });
  }
}

}  // namespace klotski::cpu
