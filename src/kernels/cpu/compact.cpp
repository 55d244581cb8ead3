// Compact rows (tensor/compact.h) on the CPU: some products read them, for others a kernel expands
// them.

#include "tensor/compact.h"
#include "kernels/cpu/formats.h"

namespace klotski::cpu {

static_assert(kCompactColumns == kCompactBlock && kCompactBytes == kCompactBlockBytes);

namespace {

void expand_compact(const Kernels& kernels, const RowExpansion& rows) {
  const TensorView& matrix = rows.matrix;
  kernels.expand({.rows = matrix.data + rows.first * matrix.stride(),
                  .stride = matrix.stride(),
                  .count = rows.count,
                  .header_bytes = compact_header_bytes(matrix.columns_of_row()),
                  .first_column = matrix.first_column,
                  .columns = matrix.columns(),
                  .out = reinterpret_cast<uint16_t*>(rows.out),
                  .out_stride = rows.out_stride});
}

}  // namespace

const FormatKernel& compact_kernel() {
  static constexpr FormatKernel kKernel = {
      .type = WeightType::bf16,
      .plain = false,
      .read_by = [](const Products& products) { return products.reads_compact; },
      .expand = expand_compact};
  return kKernel;
}

}  // namespace klotski::cpu
