#pragma once

// What matmul and experts share: products work through their rows in pieces, so that the scratch
// of a product has a bound.

#include <cstdint>

#include "kernels/ops.h"

namespace klotski::cuda {

// Of weights that are converted before they are multiplied, at a time.
inline constexpr int64_t kSlabBytes = int64_t{32} << 20;

// Bytes that one call takes of ProcessorMemory, at most.
uint64_t matmul_scratch_bytes(int64_t rows, int64_t in_width);
uint64_t experts_scratch_bytes(const MostWork& most);

}  // namespace klotski::cuda
