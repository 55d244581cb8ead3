#pragma once

// BF16_COMPACT: bf16 numbers in a little more than 12 bits each, every bit of them kept. Weights of
// a row differ little in size: all but one in about ten thousand have one of sixteen consecutive
// exponents. So four bits are enough for a number's upper byte (its sign and the exponent's upper
// seven bits), and the few other numbers are listed.
//
// A row, in memory at a multiple of kCompactAlignment:
//   header: byte 0 the least upper seven bits, byte 1 zero, bytes 2 and 3 how many are listed, then
//           these, [column, bits of the number], all of 16 bits, by ascending columns, and room
//           for more;
//   blocks of 64 columns: their lower bytes, in 64 places, then 32 bytes of four bits each about
//           the upper ones: the sign (bit 3) and the upper seven bits minus the least. Byte i has
//           the four bits of place i in its lower half, those of place 32 + i in its upper.
// Places 16 l .. 16 l + 7 of a block are of columns 8 l and on, the eight after them of columns
// 32 + 8 l and on: instructions that interleave bytes of two registers, sixteen by sixteen, then
// leave the numbers of each half in their order. Numbers are little-endian. Places of the last
// block beyond the columns are zero.

#include <cstddef>
#include <cstdint>
#include <span>

#include "tensor/dtype.h"

namespace klotski {

struct WeightFormat;  // tensor/format.h

inline constexpr DType kCompactType = DType::BF16_COMPACT;
inline constexpr uint64_t kCompactAlignment = 16;
inline constexpr int64_t kCompactBlock = 64;  // columns
inline constexpr int64_t kCompactBlockBytes = 96;
inline constexpr int64_t kCompactUppers = 8;                      // different upper seven bits
inline constexpr int64_t kMostCompactColumns = int64_t{1} << 16;  // columns are listed in 16 bits

// Normally distributed weights fill some hundredths of the room in it.
constexpr int64_t compact_header_bytes(int64_t columns) { return 16 * (2 + columns / 2048); }
// Numbers that a row can list.
constexpr int64_t most_compact_listed(int64_t columns) {
  return compact_header_bytes(columns) / 4 - 1;
}
// Bytes of the blocks that hold `columns` columns.
constexpr int64_t compact_blocks_bytes(int64_t columns) {
  return (columns + kCompactBlock - 1) / kCompactBlock * kCompactBlockBytes;
}
constexpr int64_t compact_row_bytes(int64_t columns) {
  return compact_header_bytes(columns) + compact_blocks_bytes(columns);
}

// Writes compact_row_bytes(row.size()) bytes; false where more numbers would have to be listed than
// there is room for, or the row is too long.
[[nodiscard]] bool compact_row(std::span<const uint16_t> row, std::byte* out);

// Expands columns first .. first + out.size() - 1 of a row of `columns` columns; first is a
// multiple of kCompactBlock. Whatever the row's bytes are, nothing outside it is read.
void expand_row(const std::byte* row, int64_t columns, int64_t first, std::span<uint16_t> out);

// The entry of this form in the table of formats.
const WeightFormat& compact_format();

}  // namespace klotski
