#pragma once

// HQQ: half-quadratic quantisation (Badri and Shaji 2023; Klotski's part on compression). A weight
// is a code q of 4 or 3 bits; a group of 32, 64 or 128 columns of a row has a scale s and a zero
// point z, and the weight is s * (q - z), in F32: difference and product are rounded one by one.
// Scales and zero points are numbers of 8 bits themselves, in groups of 128 ("wide groups").
//
// A row, in memory at a multiple of kHqqAlignment:
//   header: for each wide group four BF16 numbers: step and least of its scales, step and least of
//           its zero points; then a byte for the scale of each group, then a byte for the zero
//           point of each group, then zeros up to a multiple of kHqqAlignment. A byte b stands for
//           least + step * b: BF16 times 8 bits is exact in F32, so the sum is rounded once.
//   blocks of 64 columns, whatever the group:
//     4 bits: 32 bytes; byte i has the codes of columns i (lower half) and 32 + i (upper half).
//     3 bits: 16 bytes of lower bits, of which byte i has two bits each of columns i, 16 + i,
//             32 + i and 48 + i, from the lowest up; then 8 bytes, bit c of which, counted from the
//             lowest of the first byte, is the third bit of column c.
// Numbers are little-endian. Codes of the last block beyond the columns are zero. A row of n
// columns takes 4 (or 3) + 16 / group bits a weight, and 64 / n more for each wide group.

#include <cstddef>
#include <cstdint>
#include <span>

#include "tensor/dtype.h"

namespace klotski {

struct WeightFormat;  // tensor/format.h

inline constexpr uint64_t kHqqAlignment = 16;
inline constexpr int64_t kHqqBlock = 64;       // columns
inline constexpr int64_t kHqqWideGroup = 128;  // scales, or zero points, that share step and least
inline constexpr int64_t kMostHqqColumns = int64_t{1} << 20;  // far more than rows of models have

// The formats, in the order of DType from DType::HQQ4_32 on.
std::span<const WeightFormat> hqq_formats();
// The type of a number of bits (4 or 3) and a group (32, 64 or 128). Refuses (internal) others.
DType hqq_type(int bits, int64_t group);

// How a row of `columns` columns lies in its bytes.
struct HqqRow {
  int bits;
  int64_t group;
  int64_t columns;

  int most_code() const { return (1 << bits) - 1; }
  int64_t groups() const { return (columns + group - 1) / group; }
  int64_t wide_groups() const { return (groups() + kHqqWideGroup - 1) / kHqqWideGroup; }
  int64_t scales_at() const { return 8 * wide_groups(); }      // first byte of the scales
  int64_t zeros_at() const { return scales_at() + groups(); }  // first byte of the zero points
  int64_t header_bytes() const;
  int64_t block_bytes() const { return kHqqBlock / 8 * bits; }
  int64_t row_bytes() const {
    return header_bytes() + (columns + kHqqBlock - 1) / kHqqBlock * block_bytes();
  }
};

struct HqqGroup {
  float scale;
  float zero;
};
// Scale and zero point of a group, from the header of a row.
HqqGroup hqq_group(const HqqRow& form, const std::byte* row, int64_t group);

// Writes the 64 codes of a block into its bytes, and back.
void pack_hqq_codes(const uint8_t* codes, int bits, std::byte* block);
void unpack_hqq_codes(const std::byte* block, int bits, uint8_t* codes);

// The zero point that half-quadratic solving finds for the weights of one group, given in units of
// their scale, from the zero point `zero` on. Each round takes the weights' codes, then the part of
// each error that shrinking by the l_0.7 norm leaves (the outliers), then the zero point that suits
// the rest best (their mean). It ends after 20 rounds, or when the sum of absolute errors falls no
// more; the zero point of the least sum is the result, so that it is never worse than `zero`.
// Errors are in units of the scale: weights twice as large have equal codes.
float solve_hqq_zero(std::span<const float> steps, int most_code, float zero);

// Quantises a row of form.columns numbers; false where one of them is not finite. Each step uses
// numbers as they are stored: zero points suit the rounded scales, codes both.
[[nodiscard]] bool quantize_hqq_row(const HqqRow& form, const float* numbers, std::byte* row);

}  // namespace klotski
