// Quantised blocks as plain numbers, F32 or rounded to bf16: tensor/block_formats.h has the
// formats, and the functions whose results these are bit for bit before they are rounded.

#include "kernels/cpu/isa/block_bytes.h"
#include "kernels/cpu/isa/kernels_isa.h"

namespace klotski::cpu::KLOTSKI_ISA {

namespace {

constexpr SignedBytes kWhole = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
constexpr SignedBytes kCentred = {-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7};
constexpr SignedBytes kNonLinear = {-127, -104, -83, -65, -49, -35, -22, -10,
                                    1,    13,   25,  38,  53,  69,  89,  113};
constexpr SignedBytes kDoubledFp4 = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

// The numbers that codes of four bits mean: step * level[code] - below.
template <typename Out>
struct Levels;

template <>
struct Levels<float> {
  SignedBytes level;
  float step;
  float below;

  KLOTSKI_INLINE Levels(SignedBytes levels, float step_of_group, float below_group)
      : level(levels), step(step_of_group), below(below_group) {}
  KLOTSKI_INLINE void write_run(float* out, Bytes codes) const {
    write(out, floats_of(looked_up(level, codes)).times(step).minus(below));
  }
};

// All sixteen numbers are made at once: a group has more columns than that.
template <>
struct Levels<uint16_t> {
#if defined(__AVX512BW__) && defined(__AVX512BF16__)
  __m512i numbers;  // the lower half

  KLOTSKI_INLINE Levels(SignedBytes levels, float step, float below) {
    const RoundedRun run = rounded(floats_of(levels).times(step).minus(below));
    numbers = _mm512_castsi256_si512(whole<__m256i>(&run));
  }
  KLOTSKI_INLINE void write_run(uint16_t* out, Bytes codes) const {
    const __m512i places =
        _mm512_castsi256_si512(_mm256_cvtepu8_epi16(reinterpret_cast<__m128i>(codes)));
    const __m256i chosen = _mm512_castsi512_si256(_mm512_permutexvar_epi16(places, numbers));
    std::memcpy(out, &chosen, sizeof(chosen));
  }
#elif defined(__ARM_NEON)
  uint8x16_t lower;  // bytes of the numbers
  uint8x16_t upper;

  KLOTSKI_INLINE Levels(SignedBytes levels, float step, float below) {
    const RoundedRun run = rounded(floats_of(levels).times(step).minus(below));
    const auto first = reinterpret_cast<uint8x16_t>(run.parts[0]);
    const auto second = reinterpret_cast<uint8x16_t>(run.parts[1]);
    lower = vuzp1q_u8(first, second);
    upper = vuzp2q_u8(first, second);
  }
  KLOTSKI_INLINE void write_run(uint16_t* out, Bytes codes) const {
    const auto places = reinterpret_cast<uint8x16_t>(codes);
    const uint8x16_t lowers = vqtbl1q_u8(lower, places);
    const uint8x16_t uppers = vqtbl1q_u8(upper, places);
    auto* bytes = reinterpret_cast<uint8_t*>(out);
    vst1q_u8(bytes, vzip1q_u8(lowers, uppers));
    vst1q_u8(bytes + kRun, vzip2q_u8(lowers, uppers));
  }
#else
  uint16_t numbers[kRun];

  KLOTSKI_INLINE Levels(SignedBytes levels, float step, float below) {
    write(numbers, floats_of(levels).times(step).minus(below));
  }
  KLOTSKI_INLINE void write_run(uint16_t* out, Bytes codes) const {
    for (int i = 0; i < kRun; ++i) out[i] = numbers[codes[i]];
  }
#endif
};

// A format: the size of its blocks, and how one becomes numbers.
template <BlockType type>
struct Format;

// Blocks of 32 columns whose codes of four bits follow a scale: sixteen bytes, the first sixteen
// columns in their lower halves.
template <typename Out>
KLOTSKI_INLINE void write_two_runs(const Levels<Out>& levels, const std::byte* codes, Out* out) {
  const Bytes both = bytes_at(codes);
  levels.write_run(out, both & 15);
  levels.write_run(out + kRun, both >> 4);
}

template <>
struct Format<BlockType::q4_0> {
  static constexpr int64_t kColumns = 32, kBytes = 18;
  template <typename Out>
  static KLOTSKI_INLINE void expand(const std::byte* block, Out* out) {
    write_two_runs(Levels<Out>(kCentred, half_at(block), 0.0f), block + 2, out);
  }
};

template <>
struct Format<BlockType::q4_1> {
  static constexpr int64_t kColumns = 32, kBytes = 20;
  template <typename Out>
  static KLOTSKI_INLINE void expand(const std::byte* block, Out* out) {
    write_two_runs(Levels<Out>(kWhole, half_at(block), -half_at(block + 2)), block + 4, out);
  }
};

template <>
struct Format<BlockType::iq4_nl> {
  static constexpr int64_t kColumns = 32, kBytes = 18;
  template <typename Out>
  static KLOTSKI_INLINE void expand(const std::byte* block, Out* out) {
    write_two_runs(Levels<Out>(kNonLinear, half_at(block), 0.0f), block + 2, out);
  }
};

template <>
struct Format<BlockType::mxfp4> {
  static constexpr int64_t kColumns = 32, kBytes = 17;
  template <typename Out>
  static KLOTSKI_INLINE void expand(const std::byte* block, Out* out) {
    // 2^(exponent - 128): the levels are doubled.
    const auto exponent = static_cast<uint32_t>(block[0]);
    const uint32_t bits = exponent < 2 ? 0x00200000u << exponent : (exponent - 1) << 23;
    float scale;
    std::memcpy(&scale, &bits, sizeof(scale));
    write_two_runs(Levels<Out>(kDoubledFp4, scale, 0.0f), block + 1, out);
  }
};

// Blocks of 32 columns of five bits: the fifth bits of the columns, then four bits as above.
// `first` is subtracted from the codes.
template <typename Out>
KLOTSKI_INLINE void expand_five_bits(const std::byte* fifths, int8_t first, float step, float below,
                                     Out* out) {
  const Bytes both = bytes_at(fifths + 4);
  const Bytes runs[2] = {both & 15, both >> 4};
  KLOTSKI_UNROLL
  for (int64_t i = 0; i < 2; ++i) {
    const Bytes codes = runs[i] | spread_bits(number_at<uint16_t>(fifths + 2 * i), 16);
    write(out + i * kRun,
          floats_of(reinterpret_cast<SignedBytes>(codes) - first).times(step).minus(below));
  }
}

template <>
struct Format<BlockType::q5_0> {
  static constexpr int64_t kColumns = 32, kBytes = 22;
  template <typename Out>
  static KLOTSKI_INLINE void expand(const std::byte* block, Out* out) {
    expand_five_bits(block + 2, 16, half_at(block), 0.0f, out);
  }
};

template <>
struct Format<BlockType::q5_1> {
  static constexpr int64_t kColumns = 32, kBytes = 24;
  template <typename Out>
  static KLOTSKI_INLINE void expand(const std::byte* block, Out* out) {
    expand_five_bits(block + 4, 0, half_at(block), -half_at(block + 2), out);
  }
};

template <>
struct Format<BlockType::q8_0> {
  static constexpr int64_t kColumns = 32, kBytes = 34;
  template <typename Out>
  static KLOTSKI_INLINE void expand(const std::byte* block, Out* out) {
    const float scale = half_at(block);
    for (int64_t i = 0; i < kColumns; i += kRun) {
      write(out + i,
            floats_of(reinterpret_cast<SignedBytes>(bytes_at(block + 2 + i))).times(scale));
    }
  }
};

// Blocks of 256 columns, the scales of whose groups of 16 or 32 columns are small numbers.
constexpr int64_t kSuperColumns = 256;

// Scales of the sixteen groups of a block: small numbers times the block's own.
struct GroupScales {
  float of[kRun];

  KLOTSKI_INLINE GroupScales(SignedBytes small, float scale) {
    write(of, floats_of(small).times(scale));
  }
};

// Two bits a column: 32 bytes hold four times 32 columns, from the lowest bits up.
KLOTSKI_INLINE Bytes two_bits(const std::byte* bits, int64_t column) {
  const auto shift = static_cast<uint8_t>(column % 128 / 32 * 2);
  return bytes_at(bits + column / 128 * 32 + column % 32) >> shift & 3;
}
// One bit a column: bit r of 32 bytes is of columns 32 r and on.
KLOTSKI_INLINE Bytes one_bit(const std::byte* bits, int64_t column) {
  return bytes_at(bits + column % 32) >> static_cast<uint8_t>(column / 32) & 1;
}

template <>
struct Format<BlockType::q2_k> {
  static constexpr int64_t kColumns = kSuperColumns, kBytes = 84;
  template <typename Out>
  static KLOTSKI_INLINE void expand(const std::byte* block, Out* out) {
    const Bytes both = bytes_at(block);
    const GroupScales steps(reinterpret_cast<SignedBytes>(both & 15), half_at(block + 80));
    const GroupScales belows(reinterpret_cast<SignedBytes>(both >> 4), half_at(block + 82));
    KLOTSKI_UNROLL
    for (int64_t column = 0; column < kColumns; column += kRun) {
      const auto codes = reinterpret_cast<SignedBytes>(two_bits(block + 16, column));
      write(out + column,
            floats_of(codes).times(steps.of[column / kRun]).minus(belows.of[column / kRun]));
    }
  }
};

template <>
struct Format<BlockType::q3_k> {
  static constexpr int64_t kColumns = kSuperColumns, kBytes = 110;
  template <typename Out>
  static KLOTSKI_INLINE void expand(const std::byte* block, Out* out) {
    const GroupScales steps(small_scales(block + 96), half_at(block + 108));
    KLOTSKI_UNROLL
    for (int64_t column = 0; column < kColumns; column += kRun) {
      const Bytes codes = two_bits(block + 32, column) | one_bit(block, column) << 2;
      write(out + column,
            floats_of(reinterpret_cast<SignedBytes>(codes) - 4).times(steps.of[column / kRun]));
    }
  }
  // Six bits each: lower four in eight bytes (groups 8 to 15 in their upper halves), upper two in
  // four bytes, from the lowest bits up. 32 is subtracted.
  static KLOTSKI_INLINE SignedBytes small_scales(const std::byte* scales) {
    const auto fours = number_at<uint64_t>(scales);
    const auto upper = number_at<uint32_t>(scales + 8);
    constexpr uint32_t kTwoBits = 0x03030303u;
    const uint64_t low[2] = {fours & 0x0F0F0F0F0F0F0F0Fu, fours >> 4 & 0x0F0F0F0F0F0F0F0Fu};
    const uint32_t high[4] = {upper & kTwoBits, upper >> 2 & kTwoBits, upper >> 4 & kTwoBits,
                              upper >> 6 & kTwoBits};
    return reinterpret_cast<SignedBytes>(whole<Bytes>(low) | whole<Bytes>(high) << 4) - 32;
  }
};

// Scales (0 to 7) and minima (8 to 15) of the groups of Q4_K and Q5_K, six bits each in twelve
// bytes: scales of groups 0 to 3, minima of these, then the lower four bits of scale and minimum of
// groups 4 to 7, whose upper two bits are those of the first eight bytes.
KLOTSKI_INLINE SignedBytes six_bits(const std::byte* scales) {
  const auto first = number_at<uint32_t>(scales);
  const auto second = number_at<uint32_t>(scales + 4);
  const auto third = number_at<uint32_t>(scales + 8);
  constexpr uint32_t kSix = 0x3F3F3F3Fu;
  constexpr uint32_t kFour = 0x0F0F0F0Fu;
  constexpr uint32_t kUpper = 0x30303030u;
  const uint32_t small[4] = {first & kSix, (third & kFour) | (first >> 2 & kUpper), second & kSix,
                             (third >> 4 & kFour) | (second >> 2 & kUpper)};
  return whole<SignedBytes>(small);
}

// Scales and minima of the groups of a block of Q4_K or Q5_K.
struct WithMinima {
  float steps[kRun];   // [0 .. 7]
  float belows[kRun];  // [8 .. 15]

  explicit KLOTSKI_INLINE WithMinima(const std::byte* block) {
    const Floats small = floats_of(six_bits(block + 4));
    write(steps, small.times(half_at(block)));
    write(belows, small.times(half_at(block + 2)));
  }
};

template <>
struct Format<BlockType::q4_k> {
  static constexpr int64_t kColumns = kSuperColumns, kBytes = 144;
  // 32 bytes of codes hold two groups, the first in their lower halves.
  template <typename Out>
  static KLOTSKI_INLINE void expand(const std::byte* block, Out* out) {
    const WithMinima scales(block);
    const std::byte* codes = block + 16;
    for (int64_t group = 0; group < 8; group += 2, codes += 32, out += 64) {
      const Levels<Out> first(kWhole, scales.steps[group], scales.belows[8 + group]);
      const Levels<Out> second(kWhole, scales.steps[group + 1], scales.belows[9 + group]);
      for (int64_t i = 0; i < 32; i += kRun) {
        const Bytes both = bytes_at(codes + i);
        first.write_run(out + i, both & 15);
        second.write_run(out + 32 + i, both >> 4);
      }
    }
  }
};

template <>
struct Format<BlockType::q5_k> {
  static constexpr int64_t kColumns = kSuperColumns, kBytes = 176;
  template <typename Out>
  static KLOTSKI_INLINE void expand(const std::byte* block, Out* out) {
    const WithMinima scales(block);
    KLOTSKI_UNROLL
    for (int64_t column = 0; column < kColumns; column += kRun) {
      const Bytes both = bytes_at(block + 48 + column / 64 * 32 + column % 32);
      const Bytes low = column % 64 < 32 ? both & 15 : both >> 4;
      const Bytes codes = low | one_bit(block + 16, column) << 4;
      write(out + column, floats_of(reinterpret_cast<SignedBytes>(codes))
                              .times(scales.steps[column / 32])
                              .minus(scales.belows[8 + column / 32]));
    }
  }
};

template <>
struct Format<BlockType::q6_k> {
  static constexpr int64_t kColumns = kSuperColumns, kBytes = 210;
  // Four bits a column: 64 bytes hold 128 columns, the first 64 columns in their lower halves.
  template <typename Out>
  static KLOTSKI_INLINE void expand(const std::byte* block, Out* out) {
    const GroupScales steps(reinterpret_cast<SignedBytes>(bytes_at(block + 192)),
                            half_at(block + 208));
    KLOTSKI_UNROLL
    for (int64_t column = 0; column < kColumns; column += kRun) {
      const Bytes both = bytes_at(block + column / 128 * 64 + column % 64);
      const Bytes low = column % 128 < 64 ? both & 15 : both >> 4;
      const Bytes codes = low | two_bits(block + 128, column) << 4;
      write(out + column,
            floats_of(reinterpret_cast<SignedBytes>(codes) - 32).times(steps.of[column / kRun]));
    }
  }
};

template <>
struct Format<BlockType::iq4_xs> {
  static constexpr int64_t kColumns = kSuperColumns, kBytes = 136;
  template <typename Out>
  static KLOTSKI_INLINE void expand(const std::byte* block, Out* out) {
    const float scale = half_at(block);
    const auto upper = number_at<uint16_t>(block + 2);
    for (int64_t group = 0; group < 8; ++group) {
      const int low = static_cast<int>(block[4 + group / 2]) >> (group % 2 * 4) & 15;
      const int small = (low | (upper >> (2 * group) & 3) << 4) - 32;
      write_two_runs(Levels<Out>(kNonLinear, scale * static_cast<float>(small), 0.0f),
                     block + 8 + group * 16, out + group * 32);
    }
  }
};

template <BlockType type, typename Out>
void expand_row(const std::byte* block, int64_t columns, Out* out) {
  using Blocks = Format<type>;
  int64_t left = columns;
  for (; left >= Blocks::kColumns; left -= Blocks::kColumns) {
    Blocks::expand(block, out);
    block += Blocks::kBytes;
    out += Blocks::kColumns;
  }
  if (left == 0) return;
  Out last[Blocks::kColumns];  // the row ends within a block
  Blocks::expand(block, last);
  std::memcpy(out, last, static_cast<size_t>(left) * sizeof(Out));
}

template <BlockType type>
void expand_rows(const BlockRows& rows) {
  using Blocks = Format<type>;
  const std::byte* row = rows.rows + rows.first_column / Blocks::kColumns * Blocks::kBytes;
  for (int64_t n = 0; n < rows.count; ++n, row += rows.stride) {
    if (rows.out_type == WeightType::bf16) {
      expand_row<type>(row, rows.columns, static_cast<uint16_t*>(rows.out) + n * rows.out_stride);
    } else {
      expand_row<type>(row, rows.columns, static_cast<float*>(rows.out) + n * rows.out_stride);
    }
  }
}

template <int... types>
struct Table {
  static constexpr void (*kRows[])(const BlockRows&) = {
      expand_rows<static_cast<BlockType>(types)>...};
};

}  // namespace

void expand_blocks(const BlockRows& rows) {
  using All = Table<0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12>;
  static_assert(sizeof(All::kRows) / sizeof(All::kRows[0]) == static_cast<int>(BlockType::count_));
  All::kRows[static_cast<int>(rows.type)](rows);
}

}  // namespace klotski::cpu::KLOTSKI_ISA
