#pragma once

// A vector of weights in any of the stored types, read number by number.

#include "kernels/cuda/vectors_cuda.h"
#include "tensor/tensor_view.h"

namespace klotski::cuda {

struct StoredVector {
  const void* data = nullptr;
  DType type = DType::F32;

  __device__ __forceinline__ float operator[](int64_t i) const {
    if (type == DType::BF16) return to_float(static_cast<const __nv_bfloat16*>(data)[i]);
    if (type == DType::F16) return to_float(static_cast<const __half*>(data)[i]);
    return static_cast<const float*>(data)[i];
  }
};

// The numbers of a tensor in the order of memory.
inline StoredVector stored_vector(const TensorView& tensor) {
  with_stored_type(tensor.dtype, [](auto) {});  // refuses types that the vector cannot have
  return {tensor.data, tensor.dtype};
}

}  // namespace klotski::cuda
