#pragma once

#include "kernels/cpu/isa/vector.h"

namespace klotski::cpu::KLOTSKI_ISA {

// e^x with a relative error below 3e-7; 0 below -87.3 and infinity above 88.7, where e^x leaves the
// range of normal floats; NaN stays NaN.
KLOTSKI_INLINE Vector exponential(Vector x) {
  constexpr float kLargest = 88.72283f;
  constexpr float kSmallest = -87.33654f;
  // x = n ln 2 + r with |r| <= ln 2 / 2: adding 1.5 * 2^23 rounds to a whole number.
  const Vector magic = Vector{} + 12582912.0f;
  const Vector shifted = multiply_add(magic, x, Vector{} + 1.44269504f);
  const Vector n = shifted - magic;
  Vector r = multiply_add(x, n, Vector{} - 0.693359375f);
  r = multiply_add(r, n, Vector{} + 2.12194440e-4f);
  // e^r by its Taylor series: the next term, r^7 / 5040, is below 2^-22.
  Vector power = Vector{} + 1.0f / 720.0f;
  power = multiply_add(Vector{} + 1.0f / 120.0f, power, r);
  power = multiply_add(Vector{} + 1.0f / 24.0f, power, r);
  power = multiply_add(Vector{} + 1.0f / 6.0f, power, r);
  power = multiply_add(Vector{} + 0.5f, power, r);
  power = multiply_add(Vector{} + 1.0f, power, r);
  power = multiply_add(Vector{} + 1.0f, power, r);
  // Times 2^n, in two steps: 2^128 is not a float.
  const SignedWords exponent =
      reinterpret_cast<SignedWords>(shifted) - reinterpret_cast<SignedWords>(magic);
  const SignedWords half = exponent >> 1;
  const Vector result = power * reinterpret_cast<Vector>((half + 127) << 23) *
                        reinterpret_cast<Vector>((exponent - half + 127) << 23);
  const Words too_small = reinterpret_cast<Words>(x < kSmallest);
  const Words too_large = reinterpret_cast<Words>(x > kLargest);
  return reinterpret_cast<Vector>((reinterpret_cast<Words>(result) & ~too_small & ~too_large) |
                                  (too_large & 0x7F800000u));
}

}  // namespace klotski::cpu::KLOTSKI_ISA
