#pragma once

// Products work through their rows in pieces, so that the scratch of a product has a bound: used by
// matmul and experts.

#include <cstdint>

#include "kernels/cuda/context_cuda.h"
#include "kernels/ops.h"

namespace klotski::cuda {

// Bytes of weights that are converted at a time, before they are multiplied.
inline constexpr int64_t kSlabBytes = int64_t{32} << 20;

// Adds a bias to every row.
void add_bias(const Context& with, Rows out, const TensorView& bias);

// Bytes that one call takes of ProcessorMemory, at most.
uint64_t matmul_scratch_bytes(int64_t rows, int64_t in_width);
uint64_t experts_scratch_bytes(const MostWork& most);

}  // namespace klotski::cuda
