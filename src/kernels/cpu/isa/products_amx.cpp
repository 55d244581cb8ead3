// Products of inputs rounded to bf16 and bf16 weights by tile registers. It is the transposed
// product that is computed: weights are the left operand, read where they lie (16 outputs, 32
// columns), and the inputs, packed in pairs of columns, the right one.
//
// Each output is one chain of additions along its row. Where the chain is interrupted its sum is
// kept as it is, so that the blocking is not part of the result.

#include <cstring>

#include "kernels/cpu/isa/amx_tiles.h"
#include "kernels/cpu/isa/avx512.h"
#include "kernels/cpu/isa/compact_row.h"
#include "kernels/cpu/isa/kernels_isa.h"

namespace klotski::cpu::KLOTSKI_ISA {

namespace {

constexpr int64_t kTileSide = 16;  // rows of a tile; floats, or pairs of bf16, in each
constexpr int64_t kStep = 32;      // columns that one instruction takes
constexpr int64_t kElementBytes = 2;
static_assert(kTileSide == kBlockRows && kStep <= kColumnStep && kHalfBlock == kStep);

// So many columns at a time: those of 32 rows (32 KiB) stay in the first-level cache while the
// strip's weights go by, those of all rows (256 KiB) with the sums in the second-level one.
constexpr int64_t kPiece = 512;
static_assert(kPiece % kCompactColumns == 0);
constexpr int64_t kMostTiles = kStripOutputs / kTileSide;

// Up to so many blocks of rows the weights are used in place, once.
constexpr int64_t kInPlaceBlocks = 2;

// The scratch: sums of a strip, tile by tile, and copies of weights.
constexpr int64_t kSumBytes = kStripRows / kBlockRows * kMostTiles * kTileBytes;
constexpr int64_t kCopyBytes = kTileSide * kPiece * kElementBytes;
static_assert(kSumBytes + kMostTiles * kCopyBytes <= kStripScratchBytes);

// Weights that are wanted soon, line by line.
class Ahead {
 public:
  Ahead() = default;
  // `weight`: the strip's, or as many others.
  Ahead(const Strip& strip, const void* weight, int64_t column)
      : run_(reinterpret_cast<uintptr_t>(weight) + begin(strip, column)),
        stride_(static_cast<uintptr_t>(strip.compact_header > 0
                                           ? strip.weight_stride
                                           : strip.weight_stride * group(strip) * kElementBytes)),
        runs_(quotient_up(strip.outputs, group(strip))),
        lines_(lines(strip, column)) {}

  int64_t count() const { return runs_ * lines_; }

  KLOTSKI_INLINE void fetch(int64_t count) {
    for (; count > 0 && runs_ > 0; --count) {
      const uintptr_t line = run_ + static_cast<uintptr_t>(line_ * kCacheLine);
      __builtin_prefetch(reinterpret_cast<const void*>(line), 0, 2);  // to the second level
      if (++line_ < lines_) continue;
      line_ = 0;
      run_ += stride_;
      --runs_;
    }
  }

 private:
  // Outputs whose weights of the same columns follow each other.
  static int64_t group(const Strip& strip) { return strip.arranged ? kTileSide : 1; }

  // Of the piece's weights, from the beginning of those of the first output. The first piece of
  // compact rows begins with their headers, unless columns lie between.
  static uintptr_t begin(const Strip& strip, int64_t column) {
    if (strip.compact_header == 0) {
      return static_cast<uintptr_t>(column * group(strip) * kElementBytes);
    }
    const int64_t whole = strip.first_column + column;
    return whole == 0 ? 0
                      : static_cast<uintptr_t>(strip.compact_header +
                                               whole / kCompactColumns * kCompactBytes);
  }
  // Compact rows begin anywhere in a line.
  static int64_t lines(const Strip& strip, int64_t column) {
    const int64_t columns = least(kPiece, strip.width - column);
    if (strip.compact_header == 0) {
      return quotient_up(columns * group(strip) * kElementBytes, kCacheLine);
    }
    const int64_t header = strip.first_column + column == 0 ? strip.compact_header : 0;
    const int64_t bytes = header + quotient_up(columns, kCompactColumns) * kCompactBytes;
    return quotient_up(bytes, kCacheLine) + 1;
  }

  uintptr_t run_ = 0;  // of lines that follow each other
  uintptr_t stride_ = 0;
  int64_t runs_ = 0;
  int64_t lines_ = 0;
  int64_t line_ = 0;
};

// What will be read after the piece that begins at `column`.
Ahead after(const Strip& strip, int64_t column) {
  if (column + kPiece < strip.width) return {strip, strip.weight, column + kPiece};
  if (strip.next) return {strip, strip.next, 0};
  return {};
}

// Weights of 16 outputs in the current piece.
struct TileWeights {
  const std::byte* data;
  int64_t stride;  // bytes from output to output
  int64_t step;    // bytes from kStep columns to the next
};

// Tile after tile: many rows find each in sixteen neighbouring lines, where rows of weights whose
// length is a power of two would crowd a few sets of the cache. Zeros beyond the outputs and the
// columns: nothing outside the matrix is read.
TileWeights padded_copy(std::byte* copy, const uint16_t* from, int64_t stride, int64_t outputs,
                        int64_t size) {
  for (int64_t n = 0; n < kTileSide; ++n) {
    for (int64_t k = 0; k < size; k += kStep) {
      const uint32_t mask = n < outputs ? lower_bits(size - k) : 0;
      _mm512_storeu_si512(copy + k / kStep * kTileBytes + n * kTileRowBytes,
                          _mm512_maskz_loadu_epi16(mask, from + (mask ? n * stride + k : 0)));
    }
  }
  return {copy, kTileRowBytes, kTileBytes};
}

// The same of compact rows, which are expanded. They take longer than tiles are multiplied: some of
// what comes next is called for meanwhile.
TileWeights expanded_copy(std::byte* copy, const Strip& strip, int64_t first, int64_t begin,
                          Ahead& ahead, int64_t ahead_lines) {
  const int64_t outputs = least(kTileSide, strip.outputs - first);
  const int64_t size = least(kPiece, strip.width - begin);
  const int64_t column = strip.first_column + begin;
  const auto* row = static_cast<const std::byte*>(strip.weight) + first * strip.weight_stride;
  for (int64_t n = 0; n < outputs; ++n, row += strip.weight_stride) {
    std::byte* to = copy + n * kTileRowBytes;
    const std::byte* block = block_at(row, strip.compact_header, column);
    const __m512i uppers = upper_bytes(row);
    int64_t k = 0;
    for (; k + kCompactColumns <= size; k += kCompactColumns, block += kCompactBytes) {
      const ExpandedBlock numbers = expanded(block, uppers);
      std::byte* tile = to + k / kStep * kTileBytes;
      _mm512_storeu_si512(tile, numbers.lower);
      _mm512_storeu_si512(tile + kTileBytes, numbers.upper);
    }
    if (k < size) {
      const ExpandedBlock numbers = expanded(block, uppers);
      std::byte* tile = to + k / kStep * kTileBytes;
      _mm512_storeu_si512(tile, _mm512_maskz_mov_epi16(lower_bits(size - k), numbers.lower));
      if (size - k > kStep) {
        _mm512_storeu_si512(tile + kTileBytes,
                            _mm512_maskz_mov_epi16(lower_bits(size - k - kStep), numbers.upper));
      }
    }
    for_listed(row, strip.compact_header, column, size, [&](int64_t at, uint16_t number) {
      std::memcpy(to + at / kStep * kTileBytes + at % kStep * kElementBytes, &number,
                  sizeof(number));
    });
    ahead.fetch(ahead_lines);
  }
  for (int64_t n = outputs; n < kTileSide; ++n) {
    for (int64_t k = 0; k < size; k += kStep) {
      _mm512_storeu_si512(copy + k / kStep * kTileBytes + n * kTileRowBytes,
                          _mm512_setzero_si512());
    }
  }
  return {copy, kTileRowBytes, kTileBytes};
}

struct Piece {
  const Strip& strip;
  int64_t begin;  // columns before it
  int64_t steps;
  TileWeights weights[kMostTiles];
  Ahead ahead;
  int64_t ahead_lines;  // each step
};

Piece piece_of(const Strip& strip, int64_t begin) {
  const int64_t size = least(kPiece, strip.width - begin);
  const int64_t tiles = quotient_up(strip.outputs, kTileSide);
  const int64_t blocks = quotient_up(strip.rows, kBlockRows);
  Piece piece = {strip, begin, quotient_up(size, kStep), {}, after(strip, begin), 0};
  const int64_t all_steps = piece.steps * quotient_up(tiles, 2) * quotient_up(blocks, 2);
  const int64_t lines = piece.ahead.count();
  piece.ahead_lines = quotient_up(lines, all_steps);
  for (int64_t tile = 0; tile < tiles; ++tile) {
    const int64_t first = tile * kTileSide;
    std::byte* copy = strip.scratch + kSumBytes + tile * kCopyBytes;
    if (strip.compact_header > 0) {
      const int64_t lines_a_row = quotient_up(lines, strip.outputs);
      piece.weights[tile] = expanded_copy(copy, strip, first, begin, piece.ahead, lines_a_row);
      continue;
    }
    const int64_t outputs = least(kTileSide, strip.outputs - first);
    const auto* weight = static_cast<const uint16_t*>(strip.weight) + first * strip.weight_stride +
                         begin * (strip.arranged ? kTileSide : 1);
    if (strip.arranged) {
      piece.weights[tile] = {reinterpret_cast<const std::byte*>(weight), kTileRowBytes, kTileBytes};
    } else if (blocks <= kInPlaceBlocks && outputs == kTileSide && size % kStep == 0) {
      piece.weights[tile] = {reinterpret_cast<const std::byte*>(weight),
                             strip.weight_stride * kElementBytes, kTileRowBytes};
    } else {
      piece.weights[tile] = padded_copy(copy, weight, strip.weight_stride, outputs, size);
    }
  }
  return piece;
}

// [16 outputs][16 rows]
std::byte* sums_of(const Strip& strip, int64_t block, int64_t tile) {
  return strip.scratch + (block * kMostTiles + tile) * kTileBytes;
}

void write_out(const Strip& strip, int64_t block, int64_t tile) {
  const std::byte* sums = sums_of(strip, block, tile);
  __m512i words[kTileSide];
  for (int n = 0; n < kTileSide; ++n) words[n] = _mm512_loadu_si512(sums + n * kTileRowBytes);
  transpose(words);
  const int64_t row = block * kBlockRows;
  const int64_t rows = least(kBlockRows, strip.rows - row);
  const int64_t first = tile * kTileSide;
  const auto mask = static_cast<__mmask16>(lower_bits(least(kTileSide, strip.outputs - first)));
#pragma GCC unroll 16
  for (int r = 0; r < kBlockRows; ++r) {
    if (r < rows) {
      _mm512_mask_storeu_epi32(strip.out[row + r] + strip.out_offset + first, mask, words[r]);
    }
  }
}

// Inputs come from the second-level cache; the load of a tile waits for each of its lines, so they
// are called for two steps before.
constexpr int64_t kInputsAhead = 2 * kTileBytes;

KLOTSKI_INLINE void fetch_inputs(const std::byte* tile) {
#pragma GCC unroll 16
  for (int64_t line = 0; line < kTileBytes; line += kCacheLine) {
    __builtin_prefetch(tile + line, 0, 3);
  }
}

template <int kSum>
KLOTSKI_INLINE void begin_sum(bool first_piece, const std::byte* sums) {
  if (first_piece) {
    zero_tile<kSum>();
  } else {
    load_tile<kSum>(sums, kTileRowBytes);
  }
}

// One or two blocks of rows by one or two tiles of weights. Registers 0 to 3 hold the sums, 4 and 5
// weights, 6 and 7 inputs.
template <int kTiles, int kBlocks>
void add_tiles(Piece& piece, int64_t block, int64_t tile) {
  const Strip& strip = piece.strip;
  const bool first_piece = piece.begin == 0;
  std::byte* sums = sums_of(strip, block, tile);
  std::byte* next_sums = sums_of(strip, block + 1, tile);
  begin_sum<0>(first_piece, sums);
  if constexpr (kBlocks == 2) begin_sum<1>(first_piece, next_sums);
  if constexpr (kTiles == 2) begin_sum<2>(first_piece, sums + kTileBytes);
  if constexpr (kTiles == 2 && kBlocks == 2) begin_sum<3>(first_piece, next_sums + kTileBytes);

  const int64_t next_block = block_bytes(strip.width);
  const std::byte* in = strip.blocks + block * next_block + piece.begin / kStep * kTileBytes;
  TileWeights weights = piece.weights[tile];
  TileWeights next_weights = piece.weights[tile + kTiles - 1];
  Ahead ahead = piece.ahead;
  const int64_t ahead_lines = piece.ahead_lines;
  for (int64_t steps = piece.steps; steps > 0; --steps) {
    load_tile<6>(in, kTileRowBytes);
    load_tile<4>(weights.data, weights.stride);
    add_product<0, 4, 6>();
    if constexpr (kBlocks == 2) {
      load_tile<7>(in + next_block, kTileRowBytes);
      add_product<1, 4, 7>();
    }
    if constexpr (kTiles == 2) {
      load_tile<5>(next_weights.data, next_weights.stride);
      add_product<2, 5, 6>();
    }
    if constexpr (kTiles == 2 && kBlocks == 2) add_product<3, 5, 7>();
    ahead.fetch(ahead_lines);
    fetch_inputs(in + kInputsAhead);
    if constexpr (kBlocks == 2) fetch_inputs(in + next_block + kInputsAhead);
    in += kTileBytes;
    weights.data += weights.step;
    next_weights.data += next_weights.step;
  }
  piece.ahead = ahead;

  store_tile<0>(sums, kTileRowBytes);
  if constexpr (kBlocks == 2) store_tile<1>(next_sums, kTileRowBytes);
  if constexpr (kTiles == 2) store_tile<2>(sums + kTileBytes, kTileRowBytes);
  if constexpr (kTiles == 2 && kBlocks == 2) store_tile<3>(next_sums + kTileBytes, kTileRowBytes);
  if (piece.begin + kPiece < strip.width) return;
  for (int b = 0; b < kBlocks; ++b) {
    for (int t = 0; t < kTiles; ++t) write_out(strip, block + b, tile + t);
  }
}

// All rows by one or two tiles of weights, which stay in the first-level cache meanwhile.
template <int kTiles>
void add_rows(Piece& piece, int64_t tile) {
  const int64_t blocks = quotient_up(piece.strip.rows, kBlockRows);
  int64_t block = 0;
  for (; block + 2 <= blocks; block += 2) add_tiles<kTiles, 2>(piece, block, tile);
  if (block < blocks) add_tiles<kTiles, 1>(piece, block, tile);
}

// Weights as tiles want them: [outputs / 16][columns / 32][16][32].
void arrange(std::byte* rows, int64_t width, std::byte* scratch) {
  const int64_t row_bytes = width * kElementBytes;
  std::memcpy(scratch, rows, static_cast<size_t>(kTileSide * row_bytes));
  for (int64_t k = 0; k < row_bytes; k += kTileRowBytes) {
    for (int64_t n = 0; n < kTileSide; ++n, rows += kTileRowBytes) {
      _mm512_storeu_si512(rows, _mm512_loadu_si512(scratch + n * row_bytes + k));
    }
  }
}

}  // namespace

const Arrangement kArrangement = {kTileSide, kStep, arrange};

// Tiles of [16 pairs of columns][16 rows][2]. Blocks longer than a page are an odd number of pages
// apart: the same columns of many rows then lie in different sets of the caches.
int64_t block_bytes(int64_t width) {
  constexpr int64_t kPage = 4096;
  const int64_t bytes = quotient_up(width, kStep) * kTileBytes;
  return bytes <= kPage ? bytes : (quotient_up(bytes, kPage) | 1) * kPage;
}

void pack(const BlockColumns& columns) {
  for (int64_t begin = columns.begin; begin < columns.end; begin += kStep) {
    __m512i pairs[kTileSide];
#pragma GCC unroll 16
    for (int r = 0; r < kBlockRows; ++r) {
      pairs[r] = r < columns.count
                     ? rounded(columns.rows[r] + (begin - columns.begin), columns.end - begin)
                     : _mm512_setzero_si512();
    }
    transpose(pairs);
    std::byte* tile = columns.block + begin / kStep * kTileBytes;
    for (int k = 0; k < kTileSide; ++k) _mm512_storeu_si512(tile + k * kTileRowBytes, pairs[k]);
  }
}

void multiply(const Strip& strip) {
  const TileRegisters registers;
  const int64_t tiles = quotient_up(strip.outputs, kTileSide);
  Ahead first(strip, strip.weight, 0);
  first.fetch(first.count());
  for (int64_t begin = 0; begin < strip.width; begin += kPiece) {
    Piece piece = piece_of(strip, begin);
    int64_t tile = 0;
    for (; tile + 2 <= tiles; tile += 2) add_rows<2>(piece, tile);
    if (tile < tiles) add_rows<1>(piece, tile);
  }
}

}  // namespace klotski::cpu::KLOTSKI_ISA
