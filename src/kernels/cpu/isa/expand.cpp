// Compact weights as plain ones.

#if defined(__ARM_NEON)
#include <arm_neon.h>
#endif

#include "kernels/cpu/isa/compact_row.h"
#include "kernels/cpu/isa/kernels_isa.h"

namespace klotski::cpu::KLOTSKI_ISA {

namespace {

#if defined(__AVX512BW__)

using Uppers = __m512i;

KLOTSKI_INLINE Uppers uppers_of(const std::byte* row) { return upper_bytes(row); }

KLOTSKI_INLINE void expand_block(uint16_t* out, const std::byte* block, Uppers uppers) {
  const ExpandedBlock numbers = expanded(block, uppers);
  _mm512_storeu_si512(out, numbers.lower);
  _mm512_storeu_si512(out + kHalfBlock, numbers.upper);
}

#elif defined(__ARM_NEON)

using Uppers = uint8x16_t;

// The upper byte by its code.
KLOTSKI_INLINE Uppers uppers_of(const std::byte* row) {
  const uint8x8_t above = vcreate_u8(0x0706050403020100);
  const uint8x8_t plus = vand_u8(vadd_u8(vdup_n_u8(least_upper(row)), above), vdup_n_u8(0x7F));
  return vcombine_u8(plus, vorr_u8(plus, vdup_n_u8(0x80)));
}

KLOTSKI_INLINE void expand_block(uint16_t* out, const std::byte* block, Uppers uppers) {
  const auto* lowers = reinterpret_cast<const uint8_t*>(block);
  const uint8_t* codes = lowers + kCompactColumns;
  auto* bytes = reinterpret_cast<uint8_t*>(out);
  for (int64_t i = 0; i < 4; ++i) {
    const uint8x16_t pairs = vld1q_u8(codes + i % 2 * 16);
    const uint8x16_t four = i < 2 ? vandq_u8(pairs, vdupq_n_u8(15)) : vshrq_n_u8(pairs, 4);
    const uint8x16_t upper = vqtbl1q_u8(uppers, four);
    const uint8x16_t lower = vld1q_u8(lowers + i * 16);
    vst1q_u8(bytes + i * 16, vzip1q_u8(lower, upper));
    vst1q_u8(bytes + kCompactColumns + i * 16, vzip2q_u8(lower, upper));
  }
}

#else

struct Uppers {
  uint8_t least;
};

KLOTSKI_INLINE Uppers uppers_of(const std::byte* row) { return {least_upper(row)}; }

// Eight neighbours, whose codes lie in one half of as many bytes. Loops that compilers have vectors
// for.
template <int kShift>
KLOTSKI_INLINE void expand_run(uint16_t* __restrict out, const uint8_t* __restrict lowers,
                               const uint8_t* __restrict codes, Uppers uppers) {
  for (int64_t i = 0; i < 8; ++i) {
    const unsigned code = codes[i] >> kShift & 15;
    const unsigned upper = (uppers.least + (code & 7)) & 0x7F;
    out[i] = static_cast<uint16_t>((code & 8) << 12 | upper << 8 | lowers[i]);
  }
}

KLOTSKI_INLINE void expand_block(uint16_t* out, const std::byte* block, Uppers uppers) {
  const auto* lowers = reinterpret_cast<const uint8_t*>(block);
  const uint8_t* codes = lowers + kCompactColumns;
  for (int64_t i = 0; i < 2; ++i) {
    expand_run<0>(out + 8 * i, lowers + 16 * i, codes + 16 * i, uppers);
    expand_run<4>(out + 16 + 8 * i, lowers + 32 + 16 * i, codes + 16 * i, uppers);
    expand_run<0>(out + kHalfBlock + 8 * i, lowers + 16 * i + 8, codes + 16 * i + 8, uppers);
    expand_run<4>(out + kHalfBlock + 16 + 8 * i, lowers + 32 + 16 * i + 8, codes + 16 * i + 8,
                  uppers);
  }
}

#endif

void expand_row(const CompactRows& rows, const std::byte* row, uint16_t* out) {
  const Uppers uppers = uppers_of(row);
  const std::byte* block = block_at(row, rows.header_bytes, rows.first_column);
  for (int64_t c = 0; c < rows.columns; c += kCompactColumns, block += kCompactBytes) {
    expand_block(out + c, block, uppers);
  }
  for_listed(row, rows.header_bytes, rows.first_column, rows.columns,
             [&](int64_t at, uint16_t number) { out[at] = number; });
}

}  // namespace

void expand(const CompactRows& rows) {
  for (int64_t n = 0; n < rows.count; ++n) {
    expand_row(rows, rows.rows + n * rows.stride, rows.out + n * rows.out_stride);
  }
}

}  // namespace klotski::cpu::KLOTSKI_ISA
