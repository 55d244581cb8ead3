#pragma once

// The block of dot products that all products are made of. One product takes the same operations in
// a block of any size, so that a row's result does not depend on its neighbours.

#include "kernels/cpu/isa/vector.h"

namespace klotski::cpu::KLOTSKI_ISA {

// Elements of a piece: long rows are summed in pieces, which are then added in order. It bounds the
// weights of a panel in float32 (32 KiB) and the rounding error, and is part of the result.
inline constexpr int64_t kPiece = 512;

// sums[r][n] = dot product of rows x + r * x_stride and w + n * w_stride, `size` elements each.
template <int kRows, int kOutputs, typename Weight>
KLOTSKI_INLINE void tile(float (&sums)[kRows][kOutputs], const float* x, int64_t x_stride,
                         const Weight* w, int64_t w_stride, int64_t size) {
  Vector partial[kRows][kOutputs] = {};
  const auto step = [&](const auto& at) __attribute__((always_inline)) {
    Vector weights[kOutputs];
    KLOTSKI_UNROLL
    for (int n = 0; n < kOutputs; ++n) weights[n] = at(w + n * w_stride);
    KLOTSKI_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const Vector inputs = at(x + r * x_stride);
      KLOTSKI_UNROLL
      for (int n = 0; n < kOutputs; ++n) {
        partial[r][n] = multiply_add(partial[r][n], inputs, weights[n]);
      }
    }
  };
  int64_t k = 0;
  for (; k + kLanes <= size; k += kLanes) {
    step([k](const auto* row) __attribute__((always_inline)) { return load(row + k); });
  }
  if (k < size) {
    step([ k, size ](const auto* row)
             __attribute__((always_inline)) { return load(row + k, size - k); });
  }
  KLOTSKI_UNROLL
  for (int r = 0; r < kRows; ++r) {
    KLOTSKI_UNROLL
    for (int n = 0; n < kOutputs; ++n) sums[r][n] = sum(partial[r][n]);
  }
}

}  // namespace klotski::cpu::KLOTSKI_ISA
