#pragma once

// A vector of floats as wide as the instruction set's registers, in the compilers' own notation.
// KLOTSKI_ISA is the name of the set: everything here is in a namespace of that name.

#include <cstdint>
#include <cstring>
#if defined(__AVX2__)
#include <immintrin.h>
#elif defined(KLOTSKI_NEON)
#include <arm_neon.h>
#endif

#define KLOTSKI_INLINE inline __attribute__((always_inline))

// Unrolls every loop over an array that is to stay in registers: with one index that is not a
// constant, even after the loop that matters, the whole array lives in memory.
#define KLOTSKI_UNROLL _Pragma("GCC unroll 16")

namespace klotski::cpu::KLOTSKI_ISA {

KLOTSKI_INLINE int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

#if defined(__AVX512F__)
inline constexpr int kLanes = 16;
inline constexpr int kTileRows = 4;
inline constexpr int kTileOutputs = 4;
#elif defined(__AVX2__)
inline constexpr int kLanes = 8;
inline constexpr int kTileRows = 4;
inline constexpr int kTileOutputs = 2;  // 16 registers hold no more sums
#elif defined(__x86_64__)
inline constexpr int kLanes = 4;
inline constexpr int kTileRows = 4;
inline constexpr int kTileOutputs = 2;
#else
inline constexpr int kLanes = 4;
inline constexpr int kTileRows = 4;
inline constexpr int kTileOutputs = 4;
#endif

typedef float Vector __attribute__((vector_size(kLanes * 4)));
typedef float Quad __attribute__((vector_size(16)));
typedef uint32_t Words __attribute__((vector_size(kLanes * 4)));
typedef int32_t SignedWords __attribute__((vector_size(kLanes * 4)));
typedef uint16_t Halves __attribute__((vector_size(kLanes * 2)));

// The stored types of weights.
struct F16 {
  uint16_t bits;
};
struct Bf16 {
  uint16_t bits;
};

template <typename Lanes, typename Element>
KLOTSKI_INLINE Lanes whole(const Element* data) {
  Lanes lanes;
  __builtin_memcpy(&lanes, data, sizeof(lanes));
  return lanes;
}

// The end of a row: `count` elements, zeros beyond them. Kept out of the loops.
template <typename Element>
__attribute__((noinline)) const Element* padded(const Element* data, int64_t count,
                                                Element (&copy)[kLanes]) {
  std::memset(copy, 0, sizeof(copy));
  std::memcpy(copy, data, static_cast<size_t>(count) * sizeof(Element));
  return copy;
}

// Each half in the lower half of a word; `upper`: in the upper one. Written out because compilers
// turn __builtin_convertvector of these types into moves of single elements.
template <bool upper>
KLOTSKI_INLINE Words widened(Halves halves) {
#if defined(__AVX512F__)
  const auto words =
      reinterpret_cast<Words>(_mm512_cvtepu16_epi32(reinterpret_cast<__m256i>(halves)));
  return upper ? words << 16 : words;
#elif defined(__AVX2__)
  const auto words =
      reinterpret_cast<Words>(_mm256_cvtepu16_epi32(reinterpret_cast<__m128i>(halves)));
  return upper ? words << 16 : words;
#else
  const Halves zero = {};
  return upper ? reinterpret_cast<Words>(
                     __builtin_shufflevector(zero, halves, 0, 4, 1, 5, 2, 6, 3, 7))
               : reinterpret_cast<Words>(
                     __builtin_shufflevector(halves, zero, 0, 4, 1, 5, 2, 6, 3, 7));
#endif
}

// sum + a * b, rounded once where the instruction set can. Written out: a compiler that is left to
// fuse products as it likes does so in one block size and not in another, and a row's result would
// depend on its neighbours.
KLOTSKI_INLINE Vector multiply_add(Vector sum, Vector a, Vector b) {
#if defined(__AVX512F__)
  return reinterpret_cast<Vector>(_mm512_fmadd_ps(
      reinterpret_cast<__m512>(a), reinterpret_cast<__m512>(b), reinterpret_cast<__m512>(sum)));
#elif defined(__AVX2__)
  return reinterpret_cast<Vector>(_mm256_fmadd_ps(
      reinterpret_cast<__m256>(a), reinterpret_cast<__m256>(b), reinterpret_cast<__m256>(sum)));
#elif defined(KLOTSKI_NEON)
  return reinterpret_cast<Vector>(vfmaq_f32(reinterpret_cast<float32x4_t>(sum),
                                            reinterpret_cast<float32x4_t>(a),
                                            reinterpret_cast<float32x4_t>(b)));
#else
  return sum + a * b;
#endif
}

KLOTSKI_INLINE Vector load(const float* data) { return whole<Vector>(data); }

KLOTSKI_INLINE Vector load(const Bf16* data) {
  return reinterpret_cast<Vector>(widened<true>(whole<Halves>(data)));
}

// Exact, as f16_to_float of tensor/half.h is: numbers, denormals, infinities and NaNs.
KLOTSKI_INLINE Vector load(const F16* data) {
#if defined(__AVX512F__)
  return reinterpret_cast<Vector>(_mm512_cvtph_ps(whole<__m256i>(data)));
#elif defined(__AVX2__)
  return reinterpret_cast<Vector>(_mm256_cvtph_ps(whole<__m128i>(data)));
#elif defined(KLOTSKI_NEON)
  return reinterpret_cast<Vector>(vcvt_f32_f16(whole<float16x4_t>(data)));
#else
  const Words half = widened<false>(whole<Halves>(data));
  const Words exponent = half & 0x7C00u;
  const Words sign = (half & 0x8000u) << 16;
  const Words shifted = (half & 0x7FFFu) << 13;
  const SignedWords fraction = reinterpret_cast<SignedWords>(half & 0x03FFu);
  const Vector small = __builtin_convertvector(fraction, Vector) * 0x1p-24f;
  const Words is_small = reinterpret_cast<Words>(exponent == 0u);
  const Words is_special = reinterpret_cast<Words>(exponent == 0x7C00u);
  const Words number = (shifted + (112u << 23)) | (is_special & 0x7F800000u);
  return reinterpret_cast<Vector>(sign | (is_small & reinterpret_cast<Words>(small)) |
                                  (~is_small & number));
#endif
}

template <typename Element>
KLOTSKI_INLINE Vector load(const Element* data, int64_t count) {
  Element copy[kLanes];
  return load(padded(data, count, copy));
}

KLOTSKI_INLINE void store(float* data, Vector value) {
  __builtin_memcpy(data, &value, sizeof(value));
}

KLOTSKI_INLINE void store(float* data, Vector value, int64_t count) {
  std::memcpy(data, &value, static_cast<size_t>(count) * sizeof(float));
}

template <typename Element>
KLOTSKI_INLINE void convert(float* to, const Element* from, int64_t count) {
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) store(to + i, load(from + i));
  if (i < count) store(to + i, load(from + i, count - i), count - i);
}

// The lanes' sum in one fixed order: a tree.
KLOTSKI_INLINE float sum(Vector value) {
  Quad quads[kLanes / 4];
  __builtin_memcpy(quads, &value, sizeof(value));
  for (int width = kLanes / 8; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) quads[i] += quads[i + width];
  }
  return (quads[0][0] + quads[0][1]) + (quads[0][2] + quads[0][3]);
}

}  // namespace klotski::cpu::KLOTSKI_ISA
