#pragma once

// Numbers in the bytes of quantised blocks (tensor/block_formats.h), sixteen columns at a time.

#include <cstddef>
#include <cstdint>
#include <cstring>
#if defined(__ARM_NEON)
#include <arm_neon.h>
#endif

#include "kernels/cpu/isa/vector.h"

namespace klotski::cpu::KLOTSKI_ISA {

inline constexpr int64_t kRun = 16;  // columns

typedef uint8_t Bytes __attribute__((vector_size(kRun)));
typedef int8_t SignedBytes __attribute__((vector_size(kRun)));

KLOTSKI_INLINE Bytes bytes_at(const std::byte* data) { return whole<Bytes>(data); }

template <typename Number>
KLOTSKI_INLINE Number number_at(const std::byte* data) {
  Number number;
  std::memcpy(&number, data, sizeof(number));
  return number;
}

// An F16 number, exactly.
KLOTSKI_INLINE float half_at(const std::byte* data) {
  const auto bits = number_at<uint16_t>(data);
#if defined(__AVX2__)
  return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(bits)));
#elif defined(__ARM_NEON)
  return vgetq_lane_f32(vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16(bits))), 0);
#else
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  const uint32_t exponent = bits >> 10 & 31u;
  const uint32_t fraction = bits & 0x3FFu;
  uint32_t number = fraction << 13 | (exponent + 112) << 23;
  if (exponent == 31) number |= 0x7F800000u;
  if (exponent == 0) {
    const float small = static_cast<float>(fraction) * 0x1p-24f;
    std::memcpy(&number, &small, sizeof(number));
  }
  number |= sign;
  float value;
  std::memcpy(&value, &number, sizeof(value));
  return value;
#endif
}

// Bit i of sixteen bits as byte i: 0 or `value`.
KLOTSKI_INLINE Bytes spread_bits(uint16_t bits, uint8_t value) {
  const uint64_t halves[2] = {(bits & 0xFFu) * 0x0101010101010101u,
                              (bits >> 8) * 0x0101010101010101u};
  const Bytes bit = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
  const Bytes copies = whole<Bytes>(halves);
  return reinterpret_cast<Bytes>((copies & bit) == bit) & value;
}

// table[codes[i]] for codes below 16.
KLOTSKI_INLINE SignedBytes looked_up(SignedBytes table, Bytes codes) {
#if defined(__AVX2__)
  return reinterpret_cast<SignedBytes>(
      _mm_shuffle_epi8(reinterpret_cast<__m128i>(table), reinterpret_cast<__m128i>(codes)));
#elif defined(__ARM_NEON)
  return reinterpret_cast<SignedBytes>(
      vqtbl1q_s8(reinterpret_cast<int8x16_t>(table), reinterpret_cast<uint8x16_t>(codes)));
#else
  SignedBytes result;
  for (int i = 0; i < kRun; ++i) result[i] = table[codes[i]];
  return result;
#endif
}

// Sixteen floats.
struct Floats {
  Vector parts[kRun / kLanes];

  KLOTSKI_INLINE Floats times(float factor) const {
    Floats result;
    KLOTSKI_UNROLL
    for (int i = 0; i < kRun / kLanes; ++i) result.parts[i] = parts[i] * factor;
    return result;
  }
  KLOTSKI_INLINE Floats minus(float number) const {
    Floats result;
    KLOTSKI_UNROLL
    for (int i = 0; i < kRun / kLanes; ++i) result.parts[i] = parts[i] - number;
    return result;
  }
};

KLOTSKI_INLINE Floats floats_of(SignedBytes numbers) {
  Floats result;
#if defined(__AVX512F__)
  result.parts[0] = reinterpret_cast<Vector>(
      _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(reinterpret_cast<__m128i>(numbers))));
#elif defined(__AVX2__)
  const auto low = reinterpret_cast<__m128i>(numbers);
  result.parts[0] = reinterpret_cast<Vector>(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(low)));
  result.parts[1] = reinterpret_cast<Vector>(
      _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_unpackhi_epi64(low, low))));
#elif defined(__ARM_NEON)
  const auto bytes = reinterpret_cast<int8x16_t>(numbers);
  const int16x8_t halves[2] = {vmovl_s8(vget_low_s8(bytes)), vmovl_high_s8(bytes)};
  KLOTSKI_UNROLL
  for (int i = 0; i < 2; ++i) {
    result.parts[2 * i] =
        reinterpret_cast<Vector>(vcvtq_f32_s32(vmovl_s16(vget_low_s16(halves[i]))));
    result.parts[2 * i + 1] = reinterpret_cast<Vector>(vcvtq_f32_s32(vmovl_high_s16(halves[i])));
  }
#else
  for (int i = 0; i < kRun; ++i) {
    result.parts[i / kLanes][i % kLanes] = static_cast<float>(numbers[i]);
  }
#endif
  return result;
}

KLOTSKI_INLINE void write(float* out, const Floats& numbers) {
  KLOTSKI_UNROLL
  for (int i = 0; i < kRun / kLanes; ++i) store(out + i * kLanes, numbers.parts[i]);
}

// Rounded to bf16: to the nearest, ties to even. Denormal numbers may become zero.
struct RoundedRun {
  Bytes parts[2];  // eight numbers each
};

KLOTSKI_INLINE RoundedRun rounded(const Floats& numbers) {
  RoundedRun result;
#if defined(__AVX512BF16__)
  const auto both =
      reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(reinterpret_cast<__m512>(numbers.parts[0])));
  std::memcpy(&result, &both, sizeof(result));
#elif defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
  KLOTSKI_UNROLL
  for (int i = 0; i < 2; ++i) {
    const bfloat16x8_t eight =
        vcvtq_high_bf16_f32(vcvtq_low_bf16_f32(reinterpret_cast<float32x4_t>(numbers.parts[2 * i])),
                            reinterpret_cast<float32x4_t>(numbers.parts[2 * i + 1]));
    result.parts[i] = reinterpret_cast<Bytes>(eight);
  }
#else
  uint16_t upper[kRun];
  for (int i = 0; i < kRun; ++i) {
    const float number = numbers.parts[i / kLanes][i % kLanes];
    uint32_t bits;
    std::memcpy(&bits, &number, sizeof(bits));
    upper[i] = static_cast<uint16_t>(number == number ? (bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16
                                                      : bits >> 16 | 0x40u);
  }
  std::memcpy(&result, upper, sizeof(result));
#endif
  return result;
}

KLOTSKI_INLINE void write(uint16_t* out, const Floats& numbers) {
  const RoundedRun run = rounded(numbers);
  std::memcpy(out, &run, sizeof(run));
}

}  // namespace klotski::cpu::KLOTSKI_ISA
