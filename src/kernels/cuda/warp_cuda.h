#pragma once

// Operations that the lanes of a warp do together: all of them must take part.

#include <cuda_runtime.h>

namespace klotski::cuda {

inline constexpr unsigned kWarp = 32;
inline constexpr unsigned kWholeWarp = 0xFFFFFFFFu;

__device__ __forceinline__ float warp_max(float value) {
#pragma unroll
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    value = fmaxf(value, __shfl_xor_sync(kWholeWarp, value, distance));
  }
  return value;
}

// The sum over the lanes of a warp, added up pairwise.
__device__ __forceinline__ float warp_sum(float value) {
#pragma unroll
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    value += __shfl_xor_sync(kWholeWarp, value, distance);
  }
  return value;
}

}  // namespace klotski::cuda
