#pragma once

// What matmul and experts share: products work through their rows in pieces, so that the scratch
// of a product has a bound.

#include <cstdint>

namespace klotski::cuda {

// What one call takes of OpsMemory at most.
uint64_t matmul_scratch_bytes(int64_t rows, int64_t in_width);
uint64_t experts_scratch_bytes(int64_t rows, int64_t in_width, int64_t expert_width);

}  // namespace klotski::cuda
