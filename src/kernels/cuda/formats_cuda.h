#pragma once

// How a device multiplies by weights of packed formats (tensor/format.h): the only place of this
// folder that chooses code by such a format.

#include <cuda_bf16.h>

#include <cstdint>
#include <span>

#include "kernels/cuda/context_cuda.h"
#include "kernels/ops.h"
#include "tensor/tensor_view.h"

namespace klotski::cuda {

// out[rows][outputs] = in[rows][columns] * weight^T, of one row or more.
template <typename In>
struct RowsProduct {
  float* out;
  const In* in;
  int64_t rows;
  TensorView weight;
};

struct FormatKernel {
  // out[rows][columns] = a matrix of the format. Whatever its bytes are, nothing outside its rows
  // is read and nothing outside `out` written.
  void (*expand)(const Context& with, __nv_bfloat16* out, const TensorView& weight);
  // out[rows][columns] = a matrix of the format in float32; null where BF16 holds all its numbers.
  void (*expand_floats)(const Context& with, float* out, const TensorView& weight);
  // Products with matrices of the format, launched together, faster than by expanding the weights
  // first where each has up to most_few_rows() rows of this device and matrix.
  int64_t (*most_few_rows)(const Context& with, const TensorView& weight);
  void (*few_rows)(const Context& with, std::span<const RowsProduct<__nv_bfloat16>> products);
  // Products of few_rows with up to most_few_float_rows rows of float32 inputs; null where there is
  // no such kernel. Of up to most_free_float_rows they take no longer than those of rounded inputs.
  int64_t most_few_float_rows;
  int64_t most_free_float_rows;
  void (*few_float_rows)(const Context& with, std::span<const RowsProduct<float>> products);
  // Rows of an embedding table (Processor::embed); null where no table is of the format.
  void (*look_up)(const Context& with, Rows out, const TensorView& table,
                  std::span<const TokenId> tokens);
};

// The kernels of a packed format; null where weights are elements one after the other. Refuses
// (bad_model) a packed format without kernels for devices.
const FormatKernel* format_kernel(DType dtype);

// The kernels of quantised blocks (tensor/block_formats.h); null for other types.
const FormatKernel* block_kernel(DType dtype);

// The kernels of quantised checkpoints and of HQQ; null for other types.
const FormatKernel* checkpoint_kernel(DType dtype);

}  // namespace klotski::cuda
