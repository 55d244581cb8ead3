#pragma once

// Helpers of the products of bf16 inputs.

#include <immintrin.h>

#include "kernels/cpu/isa/vector.h"

namespace klotski::cpu::KLOTSKI_ISA {

KLOTSKI_INLINE int64_t quotient_up(int64_t a, int64_t b) { return (a + b - 1) / b; }
KLOTSKI_INLINE uint32_t lower_bits(int64_t count) { return count >= 32 ? ~0u : (1u << count) - 1; }

// Up to 32 elements of a row, rounded to the nearest bf16, with zeros after them.
KLOTSKI_INLINE __m512i rounded(const float* row, int64_t count) {
  const uint32_t mask = lower_bits(count);
  const __m512 low = _mm512_maskz_loadu_ps(static_cast<__mmask16>(mask), row);
  const __m512 high = _mm512_maskz_loadu_ps(static_cast<__mmask16>(mask >> 16), row + 16);
  return reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low));
}

// Swaps rows and columns of 16 x 16 words.
KLOTSKI_INLINE void transpose(__m512i (&words)[16]) {
  __m512i quads[16];  // [4 g + c]: column 4 l + c of rows 4 g .. 4 g + 3, for l = 0 .. 3
  for (int g = 0; g < 16; g += 4) {
    const __m512i low01 = _mm512_unpacklo_epi32(words[g], words[g + 1]);
    const __m512i high01 = _mm512_unpackhi_epi32(words[g], words[g + 1]);
    const __m512i low23 = _mm512_unpacklo_epi32(words[g + 2], words[g + 3]);
    const __m512i high23 = _mm512_unpackhi_epi32(words[g + 2], words[g + 3]);
    quads[g] = _mm512_unpacklo_epi64(low01, low23);
    quads[g + 1] = _mm512_unpackhi_epi64(low01, low23);
    quads[g + 2] = _mm512_unpacklo_epi64(high01, high23);
    quads[g + 3] = _mm512_unpackhi_epi64(high01, high23);
  }
  for (int c = 0; c < 4; ++c) {
    const __m512i even01 = _mm512_shuffle_i32x4(quads[c], quads[c + 4], 0x88);
    const __m512i odd01 = _mm512_shuffle_i32x4(quads[c], quads[c + 4], 0xDD);
    const __m512i even23 = _mm512_shuffle_i32x4(quads[c + 8], quads[c + 12], 0x88);
    const __m512i odd23 = _mm512_shuffle_i32x4(quads[c + 8], quads[c + 12], 0xDD);
    words[c] = _mm512_shuffle_i32x4(even01, even23, 0x88);
    words[c + 4] = _mm512_shuffle_i32x4(odd01, odd23, 0x88);
    words[c + 8] = _mm512_shuffle_i32x4(even01, even23, 0xDD);
    words[c + 12] = _mm512_shuffle_i32x4(odd01, odd23, 0xDD);
  }
}

}  // namespace klotski::cpu::KLOTSKI_ISA
