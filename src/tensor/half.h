#pragma once

#include <bit>
#include <cstdint>

namespace klotski {

// The two 16-bit float formats, held as their bits. Plain integer arithmetic, so that every machine
// and compiler gives the same result whatever its rounding or flush-to-zero mode.

inline float bf16_to_float(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

// Rounds to nearest, ties to even. A NaN stays a NaN: rounding its bits could give an infinity.
inline uint16_t float_to_bf16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return static_cast<uint16_t>((bits >> 16) | 0x0040u);
  return static_cast<uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}

// The nearest number that bf16 can hold.
inline float rounded_to_bf16(float value) { return bf16_to_float(float_to_bf16(value)); }

inline float f16_to_float(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1Fu;
  const uint32_t fraction = bits & 0x3FFu;
  if (exponent == 0x1F) return std::bit_cast<float>(sign | 0x7F800000u | (fraction << 13));
  if (exponent != 0) {
    return std::bit_cast<float>(sign | ((exponent + 127 - 15) << 23) | (fraction << 13));
  }
  if (fraction == 0) return std::bit_cast<float>(sign);
  // A denormal, fraction x 2^-24: move its leading one to the implicit place.
  const auto shift = static_cast<uint32_t>(std::countl_zero(fraction)) - 21;
  return std::bit_cast<float>(sign | ((127 - 14 - shift) << 23) |
                              (((fraction << shift) & 0x3FFu) << 13));
}

// Rounds to nearest, ties to even; a number beyond the range becomes an infinity; NaN stays NaN.
inline uint16_t float_to_f16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) {
    return static_cast<uint16_t>(sign | 0x7E00u | ((magnitude >> 13) & 0x3FFu));
  }
  if (magnitude >= 0x477FF000u) return static_cast<uint16_t>(sign | 0x7C00u);  // >= 65520
  uint32_t kept;                   // the result before rounding
  uint32_t dropped;                // the bits that rounding drops, as a fraction of 2^32
  if (magnitude >= 0x38800000u) {  // >= 2^-14: normal in both formats
    kept = (magnitude - ((127 - 15) << 23)) >> 13;
    dropped = magnitude << 19;
  } else if (magnitude >= 0x33000000u) {  // >= 2^-25: a denormal, or rounds to one
    const uint32_t fraction = (magnitude & 0x7FFFFFu) | 0x800000u;
    const uint32_t shift = 126 - (magnitude >> 23);  // 14 to 24
    kept = fraction >> shift;
    dropped = fraction << (32 - shift);
  } else {
    return static_cast<uint16_t>(sign);
  }
  const bool up = dropped > 0x80000000u || (dropped == 0x80000000u && (kept & 1u) != 0);
  return static_cast<uint16_t>(sign | (kept + (up ? 1 : 0)));
}

}  // namespace klotski
