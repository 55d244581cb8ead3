#pragma once

#include <cmath>
#include <cstdint>
#include <string_view>

namespace klotski {

// Random numbers that depend on a key and an index only: any part of a tensor can be made by
// itself, on any thread, and integer arithmetic makes them the same on every machine.

inline uint64_t mix(uint64_t value) {  // every bit of the result depends on every bit of the value
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9u;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EBu;
  return value ^ (value >> 31);
}

inline constexpr uint64_t kNoiseStep = 0x9E3779B97F4A7C15u;  // from one index to the next

inline uint64_t noise_key(uint64_t seed, std::string_view name) {
  uint64_t key = mix(seed + kNoiseStep);
  for (const char c : name) key = mix(key ^ static_cast<unsigned char>(c)) + kNoiseStep;
  return key;
}

inline uint64_t noise_bits(uint64_t key, uint64_t index) { return mix(key + index * kNoiseStep); }

// The sum of the bits' four 16-bit numbers, less its mean: nearly normal, at most 3.5 standard
// deviations from 0. No library function that rounds differently elsewhere is needed.
inline int32_t noise_in(uint64_t bits) {
  const auto low = static_cast<uint32_t>(bits);
  const auto high = static_cast<uint32_t>(bits >> 32);
  return static_cast<int32_t>((low & 0xFFFFu) + (low >> 16) + (high & 0xFFFFu) + (high >> 16)) -
         2 * 65535;
}

inline int32_t noise(uint64_t key, uint64_t index) { return noise_in(noise_bits(key, index)); }

// The standard deviation of noise().
inline double noise_deviation() { return std::sqrt((65536.0 * 65536.0 - 1.0) / 3.0); }

}  // namespace klotski
