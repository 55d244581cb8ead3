#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "kernels/cuda/context_cuda.h"
#include "tensor/tensor_view.h"

namespace klotski::cuda {

// Up to this number of rows, multiplying by compact weights where they lie is faster than expanding
// them.
inline constexpr int64_t kFewRows = 4;

// FormatKernel::few_rows of compact rows; 1 to kFewRows rows.
void few_rows(const Context& with, float* out, const __nv_bfloat16* in, int64_t rows,
              const TensorView& weight);

}  // namespace klotski::cuda
