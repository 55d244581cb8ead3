// The matrix instruction bfmmla: two rows by two rows of weights, four columns of each.

#include <arm_neon.h>

#include "loops.h"

KLOTSKI_DECLARE_MULTIPLY(neon_bf16, bf16)

namespace klotski::bench::neon_bf16 {

int64_t bf16(int64_t rounds, float* sink) {
  constexpr int kSums = 24;  // 16 do not hide the latency
  constexpr int64_t kOperations = 2 * 2 * 4 * 2;
  float32x4_t sums[kSums];
#pragma GCC unroll 24
  for (int i = 0; i < kSums; ++i) sums[i] = vdupq_n_f32(static_cast<float>(i));
  const bfloat16x8_t rows = vreinterpretq_bf16_u16(vdupq_n_u16(0x3A8A));
  const bfloat16x8_t weights = vreinterpretq_bf16_u16(vdupq_n_u16(0xBA53));
  for (int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 24
    for (int i = 0; i < kSums; ++i) sums[i] = vbfmmlaq_f32(sums[i], rows, weights);
  }
#pragma GCC unroll 24
  for (int i = 0; i < kSums; ++i) *sink += vaddvq_f32(sums[i]);
  return rounds * kSums * kOperations;
}

}  // namespace klotski::bench::neon_bf16
