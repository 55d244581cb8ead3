// Blocks of 32 columns (tensor/block_formats.h).

#include <bit>

#include "tensor/block_bytes.h"
#include "tensor/block_formats.h"

namespace klotski {

namespace {

constexpr int64_t kHalf = 16;  // columns of half a block

// FP4 (E2M1) numbers, doubled so that they are whole.
constexpr int kDoubledFp4[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

// Writes number(q) for the four bits q of each column.
template <typename Number>
void expand_four_bits(const std::byte* bits, float* out, Number number) {
  for (int64_t i = 0; i < kHalf; ++i) {
    out[i] = number(static_cast<int>(nibble_at(bits, i, 0)));
    out[kHalf + i] = number(static_cast<int>(nibble_at(bits, i, 1)));
  }
}

// Like expand_four_bits(), with the fifth bit of each column from 32 bits at `fifths`.
template <typename Number>
void expand_five_bits(const std::byte* fifths, const std::byte* bits, float* out, Number number) {
  const uint32_t high = two_bytes_at(fifths, 0) | two_bytes_at(fifths, 2) << 16;
  for (int64_t i = 0; i < kHalf; ++i) {
    out[i] = number(static_cast<int>(nibble_at(bits, i, 0) | (high >> i & 1u) << 4));
    out[kHalf + i] =
        number(static_cast<int>(nibble_at(bits, i, 1) | (high >> (kHalf + i) & 1u) << 4));
  }
}

// 2^(exponent - 128): half of the scale that the byte means, for numbers that are doubled.
float half_of_power(uint32_t exponent) {
  constexpr uint32_t kDenormal = 0x00200000u;  // 2^-128
  return std::bit_cast<float>(exponent < 2 ? kDenormal << exponent : (exponent - 1) << 23);
}

}  // namespace

void expand_q4_0(const std::byte* block, float* out) {
  const float scale = half_at(block, 0);
  expand_four_bits(block + 2, out, [=](int q) { return scale * static_cast<float>(q - 8); });
}

void expand_q4_1(const std::byte* block, float* out) {
  const float scale = half_at(block, 0);
  const float least = half_at(block, 2);
  expand_four_bits(block + 4, out, [=](int q) { return scale * static_cast<float>(q) + least; });
}

void expand_q5_0(const std::byte* block, float* out) {
  const float scale = half_at(block, 0);
  expand_five_bits(block + 2, block + 6, out,
                   [=](int q) { return scale * static_cast<float>(q - 16); });
}

void expand_q5_1(const std::byte* block, float* out) {
  const float scale = half_at(block, 0);
  const float least = half_at(block, 2);
  expand_five_bits(block + 4, block + 8, out,
                   [=](int q) { return scale * static_cast<float>(q) + least; });
}

void expand_q8_0(const std::byte* block, float* out) {
  const float scale = half_at(block, 0);
  for (int64_t i = 0; i < 2 * kHalf; ++i) {
    out[i] = scale * static_cast<float>(signed_at(block, 2 + i));
  }
}

void expand_iq4_nl(const std::byte* block, float* out) {
  const float scale = half_at(block, 0);
  expand_four_bits(block + 2, out,
                   [=](int q) { return scale * static_cast<float>(kNonLinearLevels[q]); });
}

void expand_mxfp4(const std::byte* block, float* out) {
  const float scale = half_of_power(byte_at(block, 0));
  expand_four_bits(block + 1, out,
                   [=](int q) { return scale * static_cast<float>(kDoubledFp4[q]); });
}

}  // namespace klotski
