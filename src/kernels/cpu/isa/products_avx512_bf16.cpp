// Products of inputs rounded to bf16 and bf16 weights, two columns to a lane.

#include <type_traits>

#include "kernels/cpu/isa/avx512.h"
#include "kernels/cpu/isa/kernels_isa.h"

namespace klotski::cpu::KLOTSKI_ISA {

namespace {

constexpr int64_t kStep = 32;  // columns of one vector
constexpr int64_t kGroup = 4;  // weight rows side by side

// Columns of a piece: long rows are summed in pieces, which are then added in order. Long enough
// that adding up lanes does not count, and short enough that four rows of weights (16 KiB) stay in
// the first-level cache. It is part of the result.
constexpr int64_t kPiece = 2048;

// Rows of a chunk: their piece (256 KiB) stays in the second-level cache while the weights go by.
constexpr int64_t kChunkRows = 64;

// Elements from one row of inputs to the next: an odd number of cache lines, so that equal columns
// of several rows lie in different sets of the caches.
int64_t row_elements(int64_t width) { return (quotient_up(width, kStep) | 1) * kStep; }

// Calls body(i) for i = 0 .. kCount - 1, each a constant: arrays indexed by it live in registers. A
// compiler that is left to unroll the loops stores the sums after every step.
#define KLOTSKI_LAMBDA __attribute__((always_inline))
template <int kCount, typename Body>
KLOTSKI_INLINE void unrolled(const Body& body) {
  if constexpr (kCount > 1) unrolled<kCount - 1>(body);
  body(std::integral_constant<int, kCount - 1>());
}

// The sums of the lanes of four vectors, each added up in one order.
KLOTSKI_INLINE __m128 lane_sums(const __m512 (&of)[kGroup]) {
  const __m512 pair01 =
      _mm512_add_ps(_mm512_unpacklo_ps(of[0], of[1]), _mm512_unpackhi_ps(of[0], of[1]));
  const __m512 pair23 =
      _mm512_add_ps(_mm512_unpacklo_ps(of[2], of[3]), _mm512_unpackhi_ps(of[2], of[3]));
  const __m512d a = _mm512_castps_pd(pair01);
  const __m512d b = _mm512_castps_pd(pair23);
  const __m512 quads = _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(a, b)),
                                     _mm512_castpd_ps(_mm512_unpackhi_pd(a, b)));
  const __m256 upper = _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(quads), 1));
  const __m256 halves = _mm256_add_ps(_mm512_castps512_ps256(quads), upper);
  return _mm_add_ps(_mm256_castps256_ps128(halves), _mm256_extractf128_ps(halves, 1));
}

// A piece of up to four rows of weights.
struct Group {
  const Strip& strip;
  int64_t begin;  // columns before the piece
  int64_t size;
  int64_t output;  // the first
  int64_t outputs;
  const uint16_t* weights[kGroup];  // missing rows repeat the last one
  const uint16_t* next;             // the weights that are read after the group
};

// The weights that are read after a group; the group's own where that is not known.
const uint16_t* after(const Strip& strip, int64_t begin, int64_t output) {
  const auto* matrix = static_cast<const uint16_t*>(strip.weight);
  if (output + kGroup < strip.outputs) {
    return matrix + (output + kGroup) * strip.weight_stride + begin;
  }
  if (begin + kPiece < strip.width) return matrix + begin + kPiece;
  if (strip.next) return static_cast<const uint16_t*>(strip.next);
  return matrix + output * strip.weight_stride + begin;
}

Group group_of(const Strip& strip, int64_t begin, int64_t output) {
  Group group = {.strip = strip,
                 .begin = begin,
                 .size = least(kPiece, strip.width - begin),
                 .output = output,
                 .outputs = least(kGroup, strip.outputs - output),
                 .weights = {},
                 .next = after(strip, begin, output)};
  const auto* matrix = static_cast<const uint16_t*>(strip.weight);
  for (int64_t n = 0; n < kGroup; ++n) {
    const int64_t row = output + least(n, group.outputs - 1);
    group.weights[n] = matrix + row * strip.weight_stride + begin;
  }
  return group;
}

KLOTSKI_INLINE __m512bh as_bf16(__m512i bits) { return reinterpret_cast<__m512bh>(bits); }

template <int kRows>
void add_tile(const Group& group, int64_t row) {
  const Strip& strip = group.strip;
  const int64_t stride = row_elements(strip.width);
  const uint16_t* in = reinterpret_cast<const uint16_t*>(strip.blocks) + row * stride + group.begin;
  const bool first = row == 0;  // the first rows to read these weights ask for the next ones
  const auto next = reinterpret_cast<uintptr_t>(group.next);  // some of it beyond the matrix
  const auto next_stride = static_cast<uintptr_t>(strip.weight_stride * 2);
  __m512 sums[kRows][kGroup];
  unrolled<kRows * kGroup>(
      [&](auto i) KLOTSKI_LAMBDA { sums[i / kGroup][i % kGroup] = _mm512_setzero_ps(); });
  for (int64_t k = 0; k < group.size; k += kStep) {
    const uint32_t columns = lower_bits(group.size - k);  // beyond them the inputs are zeros
    __m512bh weights[kGroup];
    unrolled<kGroup>([&](auto n) KLOTSKI_LAMBDA {
      const uintptr_t line = next + n * next_stride + static_cast<uintptr_t>(k * 2);
      if (first) __builtin_prefetch(reinterpret_cast<const void*>(line), 0, 2);  // second level
      weights[n] = as_bf16(_mm512_maskz_loadu_epi16(columns, group.weights[n] + k));
    });
    unrolled<kRows>([&](auto r) KLOTSKI_LAMBDA {
      const __m512bh inputs = as_bf16(_mm512_loadu_si512(in + r * stride + k));
      unrolled<kGroup>([&](auto n) KLOTSKI_LAMBDA {
        sums[r][n] = _mm512_dpbf16_ps(sums[r][n], inputs, weights[n]);
      });
    });
  }
  const auto mask = static_cast<__mmask8>(lower_bits(group.outputs));
  unrolled<kRows>([&](auto r) KLOTSKI_LAMBDA {
    float* out = strip.out[row + r] + strip.out_offset + group.output;
    const __m128 added = lane_sums(sums[r]);
    const __m128 result =
        group.begin == 0 ? added : _mm_add_ps(_mm_maskz_loadu_ps(mask, out), added);
    _mm_mask_storeu_ps(out, mask, result);
  });
}

void add_rows(const Group& group, int64_t row, int64_t end) {
  for (; row + 4 <= end; row += 4) add_tile<4>(group, row);
  if (end - row == 3) add_tile<3>(group, row);
  if (end - row == 2) add_tile<2>(group, row);
  if (end - row == 1) add_tile<1>(group, row);
}

}  // namespace

int64_t block_bytes(int64_t width) {
  return kBlockRows * row_elements(width) * static_cast<int64_t>(sizeof(uint16_t));
}

void pack(const BlockColumns& columns) {
  const int64_t stride = row_elements(columns.width);
  for (int64_t r = 0; r < columns.count; ++r) {
    uint16_t* to = reinterpret_cast<uint16_t*>(columns.block) + r * stride;
    for (int64_t k = columns.begin; k < columns.end; k += kStep) {
      _mm512_storeu_si512(to + k, rounded(columns.rows[r] + (k - columns.begin), columns.end - k));
    }
  }
}

void multiply(const Strip& strip) {
  for (int64_t begin = 0; begin < strip.width; begin += kPiece) {
    for (int64_t row = 0; row < strip.rows; row += kChunkRows) {
      for (int64_t n = 0; n < strip.outputs; n += kGroup) {
        add_rows(group_of(strip, begin, n), row, least(row + kChunkRows, strip.rows));
      }
    }
  }
}

}  // namespace klotski::cpu::KLOTSKI_ISA
