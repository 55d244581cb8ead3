// Quantised blocks (tensor/block_formats.h) on the CPU: kernels expand them, some outputs at a
// time.

#include "kernels/cpu/formats.h"

namespace klotski::cpu {

namespace {

constexpr int kFirst = static_cast<int>(DType::Q4_0);
static_assert(static_cast<int>(DType::MXFP4) - kFirst == static_cast<int>(BlockType::mxfp4));

template <WeightType out_type>
void expand_block_rows(const Kernels& kernels, const RowExpansion& rows) {
  const TensorView& matrix = rows.matrix;
  kernels.expand_blocks({.type = static_cast<BlockType>(static_cast<int>(matrix.dtype) - kFirst),
                         .rows = matrix.data + rows.first * matrix.stride(),
                         .stride = matrix.stride(),
                         .count = rows.count,
                         .first_column = matrix.first_column,
                         .columns = matrix.columns(),
                         .out_type = out_type,
                         .out = rows.out,
                         .out_stride = rows.out_stride});
}

}  // namespace

const FormatKernel* block_kernel(DType dtype, bool rounded) {
  static constexpr FormatKernel kFloats = {WeightType::f32, false, nullptr,
                                           expand_block_rows<WeightType::f32>};
  static constexpr FormatKernel kRounded = {WeightType::bf16, false, nullptr,
                                            expand_block_rows<WeightType::bf16>};
  const int number = static_cast<int>(dtype) - kFirst;
  if (number < 0 || number >= static_cast<int>(BlockType::count_)) return nullptr;
  return rounded ? &kRounded : &kFloats;
}

}  // namespace klotski::cpu
