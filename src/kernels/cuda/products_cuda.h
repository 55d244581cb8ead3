#pragma once

// Products work through their rows in pieces, so that the scratch of a product has a bound: used by
// matmul and experts.

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "kernels/cuda/context_cuda.h"
#include "kernels/ops.h"

namespace klotski::cuda {

// Bytes of weights that are converted at a time, before they are multiplied.
inline constexpr int64_t kSlabBytes = int64_t{32} << 20;

// Adds a bias to every row.
void add_bias(const Context& with, Rows out, const TensorView& bias);

// Bytes of the sums of parts, before they are added up, and of a by-head product's inputs.
inline constexpr int64_t kSumBytes = int64_t{8} << 20;

// Numbers of bf16 that inputs are the sum of in products with bf16 weights.
int parts_of(Precision precision);
// Numbers between one part of the inputs and the next.
inline int64_t part_stride(int64_t count) { return (count + 127) / 128 * 128; }
// Inputs as sums of `parts` numbers, the largest first, part_stride() apart.
void split_inputs(const Context& with, __nv_bfloat16* out, ConstRows in, int parts);
void convert_to_floats(const Context& with, float* out, const __half* in, int64_t count);

// Bytes that one call takes of ProcessorMemory, at most.
uint64_t matmul_scratch_bytes(int64_t rows, int64_t in_width);
uint64_t experts_scratch_bytes(const MostWork& most);

}  // namespace klotski::cuda
