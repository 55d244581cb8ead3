// Blocks of 256 columns (tensor/block_formats.h).

#include "tensor/block_bytes.h"
#include "tensor/block_formats.h"

namespace klotski {

namespace {

constexpr int64_t kSuperColumns = 256;
constexpr int64_t kScaleRun = 16;  // columns whose bits lie in as many bytes, and have one scale

// Bits of a run of columns: those of column i begin at bit `shift` of byte i.
struct BitRun {
  const std::byte* bytes;
  int64_t shift;

  int at(int64_t i, uint32_t mask) const {
    return static_cast<int>(byte_at(bytes, i) >> shift & mask);
  }
};

// Two bits a column: 32 bytes hold four times 32 columns, from the lowest bits up.
BitRun two_bits(const std::byte* bits, int64_t column) {
  return {bits + column / 128 * 32 + column % 32, column % 128 / 32 * 2};
}

// Four bits a column: 32 bytes hold two times 32 columns, the lower halves first.
BitRun four_bits_of_64(const std::byte* bits, int64_t column) {
  return {bits + column / 64 * 32 + column % 32, column % 64 / 32 * 4};
}

// One bit a column: bit r of 32 bytes is of columns 32 r and on.
BitRun one_bit(const std::byte* bits, int64_t column) { return {bits + column % 32, column / 32}; }

// Scale and minimum of a group of 32 columns, six bits each in twelve bytes: four bytes with the
// scales of groups 0 to 3, four with their minima, four with the lower four bits of scale and
// minimum of groups 4 to 7. Upper two bits of the first eight bytes are those of groups 4 to 7.
struct SixBits {
  uint32_t scale = 0;
  uint32_t minimum = 0;
};
SixBits six_bits(const std::byte* scales, int64_t group) {
  if (group < 4) return {byte_at(scales, group) & 63u, byte_at(scales, group + 4) & 63u};
  const int64_t other = group - 4;
  return {nibble_at(scales, 8 + other, 0) | byte_at(scales, other) >> 6 << 4,
          nibble_at(scales, 8 + other, 1) | byte_at(scales, other + 4) >> 6 << 4};
}

// A block of Q4_K or Q5_K: halves scale and minimum, twelve bytes of six-bit numbers, then the
// numbers q of the columns: (scale * s) * q - (minimum * m).
template <typename ExpandRun>
void expand_with_minima(const std::byte* block, ExpandRun expand_run) {
  const float scale = half_at(block, 0);
  const float minimum = half_at(block, 2);
  for (int64_t column = 0; column < kSuperColumns; column += kScaleRun) {
    const SixBits bits = six_bits(block + 4, column / 32);
    expand_run(column, scale * static_cast<float>(bits.scale),
               minimum * static_cast<float>(bits.minimum));
  }
}

// The six bits of Q3_K's scale of a group of 16 columns: lower four in bytes 0 to 7 (groups 8 to 15
// in their upper halves), upper two in bytes 8 to 11, from the lowest bits up.
int scale_of_q3_k(const std::byte* scales, int64_t group) {
  const uint32_t low = nibble_at(scales, group % 8, group / 8);
  const uint32_t high = byte_at(scales, 8 + group % 4) >> (group / 4 * 2) & 3u;
  return static_cast<int>(low | high << 4) - 32;
}

}  // namespace

// Sixteen bytes of scales (lower four bits) and minima (upper four) of groups of 16 columns, 64
// bytes of two bits a column, halves scale and minimum: (scale * s) * q - (minimum * m).
void expand_q2_k(const std::byte* block, float* out) {
  const float scale = half_at(block, 80);
  const float minimum = half_at(block, 82);
  for (int64_t column = 0; column < kSuperColumns; column += kScaleRun) {
    const float step = scale * static_cast<float>(nibble_at(block, column / 16, 0));
    const float below = minimum * static_cast<float>(nibble_at(block, column / 16, 1));
    const BitRun low = two_bits(block + 16, column);
    for (int64_t i = 0; i < kScaleRun; ++i) {
      out[column + i] = step * static_cast<float>(low.at(i, 3)) - below;
    }
  }
}

// 32 bytes of third bits, 64 bytes of two bits a column, twelve bytes of scales, half scale:
// (scale * s) * (q - 4), where the third bit of q is its 4.
void expand_q3_k(const std::byte* block, float* out) {
  const float scale = half_at(block, 108);
  for (int64_t column = 0; column < kSuperColumns; column += kScaleRun) {
    const float step = scale * static_cast<float>(scale_of_q3_k(block + 96, column / 16));
    const BitRun low = two_bits(block + 32, column);
    const BitRun high = one_bit(block, column);
    for (int64_t i = 0; i < kScaleRun; ++i) {
      out[column + i] = step * static_cast<float>((low.at(i, 3) | high.at(i, 1) << 2) - 4);
    }
  }
}

// After the scales, 128 bytes of four bits a column.
void expand_q4_k(const std::byte* block, float* out) {
  expand_with_minima(block, [=](int64_t column, float step, float below) {
    const BitRun low = four_bits_of_64(block + 16, column);
    for (int64_t i = 0; i < kScaleRun; ++i) {
      out[column + i] = step * static_cast<float>(low.at(i, 15)) - below;
    }
  });
}

// After the scales, 32 bytes of fifth bits and 128 bytes of four bits a column.
void expand_q5_k(const std::byte* block, float* out) {
  expand_with_minima(block, [=](int64_t column, float step, float below) {
    const BitRun low = four_bits_of_64(block + 48, column);
    const BitRun high = one_bit(block + 16, column);
    for (int64_t i = 0; i < kScaleRun; ++i) {
      out[column + i] = step * static_cast<float>(low.at(i, 15) | high.at(i, 1) << 4) - below;
    }
  });
}

// 128 bytes of four bits a column, 64 of two bits a column, 16 signed scales of groups of 16
// columns, half scale: (scale * s) * (q - 32). Of each 128 columns, 64 bytes hold the four bits:
// those of the first 64 columns in their lower halves.
void expand_q6_k(const std::byte* block, float* out) {
  const float scale = half_at(block, 208);
  for (int64_t column = 0; column < kSuperColumns; column += kScaleRun) {
    const float step = scale * static_cast<float>(signed_at(block, 192 + column / 16));
    const BitRun low = {block + column / 128 * 64 + column % 64, column % 128 / 64 * 4};
    const BitRun high = two_bits(block + 128, column);
    for (int64_t i = 0; i < kScaleRun; ++i) {
      out[column + i] = step * static_cast<float>((low.at(i, 15) | high.at(i, 3) << 4) - 32);
    }
  }
}

// Half scale, sixteen bits with the upper two bits of the scales of groups of 32 columns, four
// bytes with their lower four, 128 bytes of four bits a column, in each group as in IQ4_NL:
// (scale * (s - 32)) * level[q].
void expand_iq4_xs(const std::byte* block, float* out) {
  const float scale = half_at(block, 0);
  const uint32_t upper = two_bytes_at(block, 2);
  for (int64_t column = 0; column < kSuperColumns; column += kScaleRun) {
    const int64_t group = column / 32;
    const uint32_t high = upper >> (2 * group) & 3u;
    const uint32_t bits = nibble_at(block, 4 + group / 2, group % 2) | high << 4;
    const float step = scale * static_cast<float>(static_cast<int>(bits) - 32);
    const BitRun low = {block + 8 + group * 16, column % 32 / 16 * 4};
    for (int64_t i = 0; i < kScaleRun; ++i) {
      out[column + i] = step * static_cast<float>(kNonLinearLevels[low.at(i, 15)]);
    }
  }
}

}  // namespace klotski
