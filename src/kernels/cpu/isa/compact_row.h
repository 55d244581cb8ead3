#pragma once

// Rows of compact weights: tensor/compact.h has the format.

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/isa/vector.h"
#include "kernels/cpu/kernels.h"

namespace klotski::cpu::KLOTSKI_ISA {

inline constexpr int64_t kHalfBlock = kCompactColumns / 2;

KLOTSKI_INLINE uint16_t number_at(const std::byte* bytes) {
  uint16_t number;
  std::memcpy(&number, bytes, sizeof(number));
  return number;
}

// The least of the upper bytes without their signs.
KLOTSKI_INLINE uint8_t least_upper(const std::byte* row) { return static_cast<uint8_t>(row[0]); }

// The block that begins with a column.
KLOTSKI_INLINE const std::byte* block_at(const std::byte* row, int64_t header_bytes,
                                         int64_t column) {
  return row + header_bytes + column / kCompactColumns * kCompactBytes;
}

// Numbers that a row lists, however many it says.
KLOTSKI_INLINE int64_t listed_count(const std::byte* row, int64_t header_bytes) {
  return least(number_at(row + 2), header_bytes / 4 - 1);
}

// Whether the listed numbers of a row are by ascending columns, as they should be.
KLOTSKI_INLINE bool in_order(const std::byte* row, int64_t header_bytes) {
  const int64_t listed = listed_count(row, header_bytes);
  for (int64_t i = 2; i <= listed; ++i) {
    if (number_at(row + 4 * i) < number_at(row + 4 * (i - 1))) return false;
  }
  return true;
}

// The listed numbers of a row, one after the other.
class Listed {
 public:
  Listed() = default;
  // `first_column` is the column that counts as column 0.
  Listed(const std::byte* row, int64_t header_bytes, int64_t first_column)
      : at_(row), end_(row + 4 * listed_count(row, header_bytes)), first_column_(first_column) {
    advance();
  }

  // Column of the number at hand; beyond all columns after the last number.
  KLOTSKI_INLINE int64_t column() const { return column_; }
  KLOTSKI_INLINE uint16_t number() const { return number_at(at_ + 2); }
  KLOTSKI_INLINE void advance() {
    if (at_ == end_) {
      column_ = INT64_MAX;
      return;
    }
    at_ += 4;
    column_ = number_at(at_) - first_column_;
  }

 private:
  const std::byte* at_ = nullptr;
  const std::byte* end_ = nullptr;  // the last listed number
  int64_t first_column_ = 0;
  int64_t column_ = INT64_MAX;
};

// Calls put(place, number) for the listed numbers of columns first .. first + count - 1.
template <typename Put>
KLOTSKI_INLINE void for_listed(const std::byte* row, int64_t header_bytes, int64_t first,
                               int64_t count, const Put& put) {
  const int64_t listed = listed_count(row, header_bytes);
  for (int64_t i = 1; i <= listed; ++i) {
    const int64_t at = number_at(row + 4 * i) - first;
    if (at >= 0 && at < count) put(at, number_at(row + 4 * i + 2));
  }
}

#if defined(__AVX512BW__)

// The upper byte by its code, sixteen times four.
KLOTSKI_INLINE __m512i upper_bytes(const std::byte* row) {
  const __m128i above = _mm_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 7);
  const __m128i signs =
      _mm_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, -128, -128, -128, -128, -128, -128, -128, -128);
  const __m128i uppers = _mm_add_epi8(_mm_set1_epi8(static_cast<char>(least_upper(row))), above);
  return _mm512_broadcast_i32x4(_mm_or_si128(_mm_and_si128(uppers, _mm_set1_epi8(0x7F)), signs));
}

// Halves of a block, of 32 columns each.
struct ExpandedBlock {
  __m512i lower;
  __m512i upper;
};

KLOTSKI_INLINE ExpandedBlock expanded(const std::byte* block, __m512i upper_bytes) {
  const __m512i pairs = _mm512_broadcast_i64x4(
      _mm256_loadu_si256(reinterpret_cast<const __m256i*>(block + kCompactColumns)));
  const __m512i shifts = _mm512_set_epi64(0x0004000400040004, 0x0004000400040004,
                                          0x0004000400040004, 0x0004000400040004, 0, 0, 0, 0);
  const __m512i codes = _mm512_and_si512(_mm512_srlv_epi16(pairs, shifts), _mm512_set1_epi8(15));
  const __m512i uppers = _mm512_shuffle_epi8(upper_bytes, codes);
  const __m512i lowers = _mm512_loadu_si512(block);
  return {_mm512_unpacklo_epi8(lowers, uppers), _mm512_unpackhi_epi8(lowers, uppers)};
}

#endif

}  // namespace klotski::cpu::KLOTSKI_ISA
