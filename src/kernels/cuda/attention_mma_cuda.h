#pragma once

// Instructions of capability 8.0 that C++ has no words for: copies to shared memory during
// arithmetic, and products of small matrices in bf16 with sums in float32.

#include <cuda_bf16.h>

#include <cstdint>

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800

namespace klotski::cuda::prefill {

__device__ inline uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// 16 bytes to shared memory, zeros where they are not wanted.
__device__ inline void copy_async(void* to, const void* from, bool wanted) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from),
               "r"(wanted ? 16 : 0)
               : "memory");
}
__device__ inline void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits until no more than `under_way` of the committed groups are under way.
template <int under_way>
__device__ inline void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(under_way) : "memory");
}

// Four matrices of 8 x 8; lane l gives the address of row l % 8 of matrix l / 8.
__device__ inline void load_matrices(uint32_t (&to)[4], const __nv_bfloat16* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(shared_address(row))
               : "memory");
}
__device__ inline void load_matrices_transposed(uint32_t (&to)[4], const __nv_bfloat16* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(shared_address(row))
               : "memory");
}

// sums += a * b
__device__ inline void multiply(float (&sums)[4], const uint32_t (&a)[4], uint32_t b0,
                                uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
// sums[0] and sums[1], of eight columns each, += a * b
__device__ inline void multiply_two(float (*sums)[4], const uint32_t (&a)[4],
                                    const uint32_t (&b)[4]) {
  multiply(sums[0], a, b[0], b[1]);
  multiply(sums[1], a, b[2], b[3]);
}

__device__ inline uint32_t pack(float low, float high) {
  const __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&both);
}

// Maximum and sum over the four lanes that hold a row of a product.
__device__ inline float row_max(float value) {
  value = fmaxf(value, __shfl_xor_sync(0xFFFFFFFFu, value, 1));
  return fmaxf(value, __shfl_xor_sync(0xFFFFFFFFu, value, 2));
}
__device__ inline float row_sum(float value) {
  value += __shfl_xor_sync(0xFFFFFFFFu, value, 1);
  return value + __shfl_xor_sync(0xFFFFFFFFu, value, 2);
}

}  // namespace klotski::cuda::prefill

#endif
