#pragma once

// How a device multiplies by weights of packed formats (tensor/format.h): the only place of this
// folder that chooses code by such a format.

#include <cuda_bf16.h>

#include <cstdint>

#include "kernels/cuda/context_cuda.h"
#include "tensor/tensor_view.h"

namespace klotski::cuda {

struct FormatKernel {
  // out[rows][columns] = a matrix of the format. Whatever its bytes are, nothing outside its rows
  // is read and nothing outside `out` written.
  void (*expand)(const Context& with, __nv_bfloat16* out, const TensorView& weight);
  // out[rows][outputs] = in[rows][columns] * weight^T for 1 to most_few_rows rows, faster than by
  // expanding the weights first.
  int64_t most_few_rows;
  void (*few_rows)(const Context& with, float* out, const __nv_bfloat16* in, int64_t rows,
                   const TensorView& weight);
};

// The kernels of a packed format; null where weights are elements one after the other. Refuses
// (bad_model) a packed format without kernels for devices.
const FormatKernel* format_kernel(DType dtype);

}  // namespace klotski::cuda
