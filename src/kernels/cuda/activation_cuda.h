#pragma once

#include <cuda_runtime.h>

#include "kernels/ops.h"

namespace klotski::cuda {

// Activations of one number; a NaN stays one.
template <Activation kActivation>
__device__ __forceinline__ float activated(float x) {
  if constexpr (kActivation == Activation::silu) {
    return x / (1.0f + expf(-x));
  } else if constexpr (kActivation == Activation::gelu) {
    return 0.5f * x * (1.0f + erff(x * 0.70710678118654752f));
  } else if constexpr (kActivation == Activation::gelu_tanh) {
    return 0.5f * x * (1.0f + tanhf(0.79788456080286536f * (x + 0.044715f * x * x * x)));
  } else {
    return x < 0.0f ? 0.0f : x;
  }
}

}  // namespace klotski::cuda
