// Blocks of 32 columns (tensor/block_formats.h).

#include <bit>

#include "tensor/block_bytes.h"
#include "tensor/block_formats.h"

namespace klotski {

namespace {

constexpr int64_t kSmallColumns = 32;

// FP4 (E2M1) numbers, doubled so that they are whole.
constexpr int kDoubledFp4[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

// The four bits of a column, from byte `at` of the block on.
uint32_t four_bits(const std::byte* block, int64_t at, int64_t column) {
  return nibble_at(block, at + column % 16, column / 16);
}

// The four bits of a column, and its fifth from the 32 bits at byte `high`.
int five_bits(const std::byte* block, int64_t high, int64_t at, int64_t column) {
  const uint32_t fifth = byte_at(block, high + column / 8) >> (column % 8) & 1u;
  return static_cast<int>(four_bits(block, at, column) | fifth << 4);
}

// 2^(exponent - 128): half of the scale that the byte means, for numbers that are doubled.
float half_of_power(uint32_t exponent) {
  constexpr uint32_t kDenormal = 0x00200000u;  // 2^-128
  return std::bit_cast<float>(exponent < 2 ? kDenormal << exponent : (exponent - 1) << 23);
}

}  // namespace

void expand_q4_0(const std::byte* block, float* out) {
  const float scale = half_at(block, 0);
  for (int64_t c = 0; c < kSmallColumns; ++c) {
    out[c] = scale * static_cast<float>(static_cast<int>(four_bits(block, 2, c)) - 8);
  }
}

void expand_q4_1(const std::byte* block, float* out) {
  const float scale = half_at(block, 0);
  const float least = half_at(block, 2);
  for (int64_t c = 0; c < kSmallColumns; ++c) {
    out[c] = scale * static_cast<float>(four_bits(block, 4, c)) + least;
  }
}

void expand_q5_0(const std::byte* block, float* out) {
  const float scale = half_at(block, 0);
  for (int64_t c = 0; c < kSmallColumns; ++c) {
    out[c] = scale * static_cast<float>(five_bits(block, 2, 6, c) - 16);
  }
}

void expand_q5_1(const std::byte* block, float* out) {
  const float scale = half_at(block, 0);
  const float least = half_at(block, 2);
  for (int64_t c = 0; c < kSmallColumns; ++c) {
    out[c] = scale * static_cast<float>(five_bits(block, 4, 8, c)) + least;
  }
}

void expand_q8_0(const std::byte* block, float* out) {
  const float scale = half_at(block, 0);
  for (int64_t c = 0; c < kSmallColumns; ++c) {
    out[c] = scale * static_cast<float>(signed_at(block, 2 + c));
  }
}

void expand_iq4_nl(const std::byte* block, float* out) {
  const float scale = half_at(block, 0);
  for (int64_t c = 0; c < kSmallColumns; ++c) {
    out[c] = scale * static_cast<float>(kNonLinearLevels[four_bits(block, 2, c)]);
  }
}

void expand_mxfp4(const std::byte* block, float* out) {
  const float scale = half_of_power(byte_at(block, 0));
  for (int64_t c = 0; c < kSmallColumns; ++c) {
    out[c] = scale * static_cast<float>(kDoubledFp4[four_bits(block, 1, c)]);
  }
}

}  // namespace klotski
