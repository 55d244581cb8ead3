#pragma once

// Numbers as they are stored, eight at a time: with 16-bit types that is one 16-byte access.

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

#include "base/error.h"
#include "tensor/dtype.h"

namespace klotski::cuda {

inline constexpr int kVector = 8;
inline constexpr unsigned kThreads = 256;

struct Floats {
  float values[kVector];
};

__device__ __forceinline__ float to_float(float value) { return value; }
__device__ __forceinline__ float to_float(__half value) { return __half2float(value); }
__device__ __forceinline__ float to_float(__nv_bfloat16 value) { return __bfloat162float(value); }

// Rounded to nearest; a number beyond F16's range becomes its largest. A NaN stays one.
template <typename Stored>
__device__ __forceinline__ Stored rounded_to(float value);
template <>
__device__ __forceinline__ float rounded_to<float>(float value) {
  return value;
}
template <>
__device__ __forceinline__ __half rounded_to<__half>(float value) {
  constexpr float kLargest = 65504.0f;
  return __float2half_rn(fabsf(value) > kLargest ? copysignf(kLargest, value) : value);
}
template <>
__device__ __forceinline__ __nv_bfloat16 rounded_to<__nv_bfloat16>(float value) {
  return __float2bfloat16_rn(value);
}

template <typename Stored>
struct alignas(16) Packed {
  Stored values[16 / sizeof(Stored)];
};

// The first `count` of eight neighbours, then zeros. `aligned`: where eight begin is a multiple of
// 16 bytes.
template <typename Stored>
__device__ __forceinline__ Floats load(const Stored* from, int64_t count, bool aligned) {
  Floats loaded;
  if (aligned && count >= kVector) {
    constexpr int kPerAccess = 16 / sizeof(Stored);
#pragma unroll
    for (int part = 0; part < kVector / kPerAccess; ++part) {
      const auto packed = reinterpret_cast<const Packed<Stored>*>(from)[part];
#pragma unroll
      for (int i = 0; i < kPerAccess; ++i) {
        loaded.values[part * kPerAccess + i] = to_float(packed.values[i]);
      }
    }
    return loaded;
  }
#pragma unroll
  for (int i = 0; i < kVector; ++i) loaded.values[i] = i < count ? to_float(from[i]) : 0.0f;
  return loaded;
}

// Stores the first `count` of eight neighbours.
template <typename Stored>
__device__ __forceinline__ void store(Stored* to, const Floats& floats, int64_t count,
                                      bool aligned) {
  if (aligned && count >= kVector) {
    constexpr int kPerAccess = 16 / sizeof(Stored);
#pragma unroll
    for (int part = 0; part < kVector / kPerAccess; ++part) {
      Packed<Stored> packed;
#pragma unroll
      for (int i = 0; i < kPerAccess; ++i) {
        packed.values[i] = rounded_to<Stored>(floats.values[part * kPerAccess + i]);
      }
      reinterpret_cast<Packed<Stored>*>(to)[part] = packed;
    }
    return;
  }
#pragma unroll
  for (int i = 0; i < kVector; ++i) {
    if (i < count) to[i] = rounded_to<Stored>(floats.values[i]);
  }
}

// Copies a row with all threads of a block of kThreads. `aligned`: both rows are.
template <typename To, typename From>
__device__ __forceinline__ void copy_row(To* to, const From* from, int64_t width, bool aligned) {
  for (int64_t i = threadIdx.x * kVector; i < width; i += kThreads * kVector) {
    store(to + i, load(from + i, width - i, aligned), width - i, aligned);
  }
}

inline bool is_aligned(const void* memory) { return reinterpret_cast<uintptr_t>(memory) % 16 == 0; }

// Whether each row of a matrix that begins there can be read eight numbers at a time.
inline bool rows_aligned(const void* memory, int64_t width) {
  return is_aligned(memory) && width % kVector == 0;
}

inline unsigned blocks_of(int64_t items, int64_t per_block) {
  return static_cast<unsigned>((items + per_block - 1) / per_block);
}

// Blocks of a kernel of kThreads that strides over `items`, one thread each: enough for any device.
inline unsigned striding_blocks(int64_t items) {
  constexpr unsigned kMost = 1u << 16;
  return std::min(blocks_of(std::min<int64_t>(items, int64_t{kMost} * kThreads), kThreads), kMost);
}

// The number of this thread and of all threads, for kernels that stride over items.
__device__ __forceinline__ int64_t global_thread() {
  return int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
}
__device__ __forceinline__ int64_t all_threads() { return int64_t{gridDim.x} * blockDim.x; }

// Calls function(value of the C++ type that holds such elements).
template <typename Function>
void with_stored_type(DType dtype, const Function& function) {
  switch (dtype) {
    case DType::F32:
      return function(float{});
    case DType::F16:
      return function(__half{});
    case DType::BF16:
      return function(__nv_bfloat16{});
    default:
      fail(ErrorKind::internal, "weights of type {} reached a kernel", dtype_name(dtype));
  }
}

}  // namespace klotski::cuda
