#pragma once

// Weights of packed formats (tensor/format.h) as the numbers they are, for products.

#include <cuda_bf16.h>

#include <algorithm>
#include <cstdint>

#include "kernels/cuda/context_cuda.h"
#include "kernels/cuda/formats_cuda.h"
#include "kernels/cuda/piece_rows.h"
#include "kernels/cuda/products_cuda.h"
#include "tensor/tensor_view.h"

namespace klotski::cuda {

// FormatKernel::expand of compact rows (tensor/compact.h).
void expand(const Context& with, __nv_bfloat16* out, const TensorView& weight);

// A slab has a multiple of this number of rows: where its outputs begin is aligned.
inline constexpr int64_t kSlabStep = 64;

// Calls function(slab, first) for some rows of a matrix after the other, from row `first` on. Rows
// of a packed format are expanded, at most kSlabBytes or kSlabStep rows at a time, and gone when it
// returns: to BF16 numbers, or where `exact` to F32 ones if BF16 cannot hold them. Any other matrix
// is a single slab: itself.
template <typename Function>
void for_each_slab(const Context& with, const TensorView& weight, bool exact,
                   const Function& function) {
  const FormatKernel* format = format_kernel(weight.dtype);
  if (!format) return function(weight, int64_t{0});
  const bool floats = exact && format->expand_floats;
  const DType type = floats ? DType::F32 : DType::BF16;
  const int64_t row_bytes = bytes_per_row(type, weight.columns());
  const int64_t most = kSlabBytes / std::max<int64_t>(kSlabStep * row_bytes, 1);
  const int64_t steps =
      piece_rows((weight.rows() + kSlabStep - 1) / kSlabStep, std::max<int64_t>(most, 1));
  const int64_t rows = std::min(kSlabStep * steps, weight.rows());
  const Scratch scratch(with, static_cast<uint64_t>(rows * row_bytes));
  for (int64_t first = 0; first < weight.rows(); first += rows) {
    const TensorView part = rows_between(weight, first, std::min(first + rows, weight.rows()));
    if (floats) {
      format->expand_floats(with, scratch.as<float>(), part);
    } else {
      format->expand(with, scratch.as<__nv_bfloat16>(), part);
    }
    function(TensorView{scratch.as<const std::byte>(), type, part.shape}, first);
  }
}

}  // namespace klotski::cuda
