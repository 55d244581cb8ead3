// The dot product vdpbf16ps: two columns to each of 16 lanes.

#include <immintrin.h>

#include "loops.h"

KLOTSKI_DECLARE_MULTIPLY(avx512_bf16, bf16)

namespace klotski::bench::avx512_bf16 {

int64_t bf16(int64_t rounds, float* sink) {
  constexpr int kSums = 24;
  constexpr int64_t kOperations = 16 * 2 * 2;
  __m512 sums[kSums];
#pragma GCC unroll 24
  for (int i = 0; i < kSums; ++i) sums[i] = _mm512_set1_ps(static_cast<float>(i));
  const auto rows = reinterpret_cast<__m512bh>(_mm512_set1_epi16(0x3A8A));
  const auto weights = reinterpret_cast<__m512bh>(_mm512_set1_epi16(0x3A53));
  for (int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 24
    for (int i = 0; i < kSums; ++i) sums[i] = _mm512_dpbf16_ps(sums[i], rows, weights);
  }
#pragma GCC unroll 24
  for (int i = 0; i < kSums; ++i) *sink += _mm512_reduce_add_ps(sums[i]);
  return rounds * kSums * kOperations;
}

}  // namespace klotski::bench::avx512_bf16
