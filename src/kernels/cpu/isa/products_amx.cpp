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

// Columns of a piece where there are many rows: the piece of 32 rows (32 KiB) stays in the
// first-level cache while the strip's weights go by, the piece of all rows (256 KiB) with the sums
// in the second-level one.
constexpr int64_t kPiece = 512;

// Few rows keep their sums in registers, of two tiles of outputs at a time.
constexpr int64_t kFewRows = 2 * kBlockRows;
constexpr int64_t kFewOutputs = 2 * kTileSide;

// Columns of a piece of compact weights where there are few rows: two copies of a tile's piece (16
// KiB) stay in the first-level cache, which two threads may share.
constexpr int64_t kFewCompactPiece = 256;
constexpr int64_t kFewCompactBytes = kFewCompactPiece / kCompactColumns * kCompactBytes;
static_assert(kPiece % kCompactColumns == 0 && kFewCompactPiece % kCompactColumns == 0);

// The scratch: sums of a strip, tile by tile, and two copies of a tile of weights.
constexpr int64_t kMostTiles = kStripOutputs / kTileSide;
constexpr int64_t kSumBytes = kStripRows / kBlockRows * kMostTiles * kTileBytes;
constexpr int64_t kCopyBytes = kTileSide * kPiece * kElementBytes;
static_assert(kSumBytes + 2 * kCopyBytes <= kStripScratchBytes && kFewCompactPiece <= kPiece);

// Weights of a piece that are wanted soon, line by line.
class Ahead {
 public:
  Ahead() = default;
  // `weight`: the strip's, or as many others.
  Ahead(const Strip& strip, const void* weight, int64_t column, int64_t columns) {
    // Outputs whose weights lie together, column by column.
    const int64_t group = strip.arranged ? kTileSide : 1;
    int64_t begin = column * group * kElementBytes;
    int64_t bytes = least(columns, strip.width - column) * group * kElementBytes;
    int64_t stride = strip.weight_stride * group * kElementBytes;
    if (strip.compact_header > 0) {
      const int64_t blocks = quotient_up(least(columns, strip.width - column), kCompactColumns);
      const int64_t whole = strip.first_column + column;
      // The first piece begins with the headers, unless columns lie between.
      begin = whole == 0 ? 0 : strip.compact_header + whole / kCompactColumns * kCompactBytes;
      bytes = (whole == 0 ? strip.compact_header : 0) + blocks * kCompactBytes;
      bytes += kCacheLine / 2;  // rows begin anywhere in a line, mostly at half of one
      stride = strip.weight_stride;
    }
    lines_ = quotient_up(bytes, kCacheLine);
    runs_ = quotient_up(strip.outputs, group);
    line_ = reinterpret_cast<uintptr_t>(weight) + static_cast<uintptr_t>(begin);
    end_ = line_ + static_cast<uintptr_t>(lines_ * kCacheLine);
    stride_ = static_cast<uintptr_t>(stride);
  }

  int64_t count() const { return runs_ * lines_; }

  KLOTSKI_INLINE void fetch(int64_t count) {
    for (; count > 0 && runs_ > 0; --count) {
      __builtin_prefetch(reinterpret_cast<const void*>(line_), 0, 2);  // to the second-level cache
      line_ += kCacheLine;
      if (line_ != end_) continue;
      line_ += stride_ - static_cast<uintptr_t>(lines_ * kCacheLine);
      end_ += stride_;
      --runs_;
    }
  }

 private:
  uintptr_t line_ = 0;
  uintptr_t end_ = 0;  // end of the run, which is lines that follow each other
  uintptr_t stride_ = 0;
  int64_t lines_ = 0;  // lines of a run
  int64_t runs_ = 0;
};

// The weights that are read after the piece that begins at `column`.
Ahead after(const Strip& strip, int64_t column) {
  if (column + kPiece < strip.width) return {strip, strip.weight, column + kPiece, kPiece};
  if (strip.next) return {strip, strip.next, 0, kPiece};
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

// Plain weights of 16 outputs, or of the last ones of a strip, in a piece: where they lie, if that
// can be.
TileWeights plain_tile(const Strip& strip, int64_t tile, std::byte* copy, int64_t begin,
                       int64_t size) {
  const int64_t first = tile * kTileSide;
  const int64_t outputs = least(kTileSide, strip.outputs - first);
  const auto* weight = static_cast<const uint16_t*>(strip.weight) + first * strip.weight_stride +
                       begin * (strip.arranged ? kTileSide : 1);
  if (strip.arranged) {
    return {reinterpret_cast<const std::byte*>(weight), kTileRowBytes, kTileBytes};
  }
  if (strip.rows <= kFewRows && outputs == kTileSide && size % kStep == 0) {
    return {reinterpret_cast<const std::byte*>(weight), strip.weight_stride * kElementBytes,
            kTileRowBytes};
  }
  return padded_copy(copy, weight, strip.weight_stride, outputs, size);
}

// Compact weights of 16 outputs, or of the last ones of a strip, piece by piece.
class CompactTile {
 public:
  // `begin`: columns before the first piece.
  CompactTile(const Strip& strip, int64_t tile, int64_t begin)
      : strip_(strip), outputs_(least(kTileSide, strip.outputs - tile * kTileSide)) {
    for (int64_t n = 0; n < outputs_; ++n) {
      const std::byte* row = static_cast<const std::byte*>(strip.weight) +
                             (tile * kTileSide + n) * strip.weight_stride;
      rows_[n].uppers = _mm512_castsi512_si128(upper_bytes(row));
      rows_[n].block = block_at(row, strip.compact_header, strip.first_column + begin);
      const bool ordered = in_order(row, strip.compact_header);
      if (ordered) rows_[n].listed = Listed(row, strip.compact_header, strip.first_column);
      rows_[n].disordered = ordered ? nullptr : row;
    }
  }

  // The next piece of one output, which begins here, as in a padded copy. Meanwhile as many bytes
  // from `later` on are called for, without the line in which they begin; null: none.
  KLOTSKI_INLINE void expand(int64_t output, std::byte* copy, int64_t begin, int64_t size,
                             const std::byte* later) {
    std::byte* to = copy + output * kTileRowBytes;
    if (output >= outputs_) {
      for (int64_t k = 0; k < size; k += kStep) {
        _mm512_storeu_si512(to + k / kStep * kTileBytes, _mm512_setzero_si512());
      }
      return;
    }
    CompactRow& row = rows_[output];
    const __m512i uppers = _mm512_broadcast_i32x4(row.uppers);
    const std::byte* block = row.block;
    int64_t k = 0;
    for (; k + 2 * kCompactColumns <= size; k += 2 * kCompactColumns) {
      std::byte* tile = to + k / kStep * kTileBytes;
      put_block(tile, expanded(block, uppers));
      put_block(tile + 2 * kTileBytes, expanded(block + kCompactBytes, uppers));
      block += 2 * kCompactBytes;
      if (!later) continue;
      static_assert(2 * kCompactBytes == 3 * kCacheLine);
#pragma GCC unroll 3
      for (int line = 0; line < 3; ++line, later += kCacheLine) {
        __builtin_prefetch(later + kCacheLine - 1, 0, 2);  // into the second-level cache
      }
    }
    for (; k < size; k += kCompactColumns, block += kCompactBytes) {
      const ExpandedBlock numbers = expanded(block, uppers);
      const uint32_t in_upper = size - k > kStep ? lower_bits(size - k - kStep) : 0;
      put_block(to + k / kStep * kTileBytes,
                {_mm512_maskz_mov_epi16(lower_bits(size - k), numbers.lower),
                 _mm512_maskz_mov_epi16(in_upper, numbers.upper)});
    }
    row.block = block;
    const auto put = [&](int64_t at, uint16_t number) {
      std::memcpy(to + at / kStep * kTileBytes + at % kStep * kElementBytes, &number,
                  sizeof(number));
    };
    if (row.disordered) {
      for_listed(row.disordered, strip_.compact_header, strip_.first_column + begin, size, put);
    }
    for (; row.listed.column() < begin + size; row.listed.advance()) {
      const int64_t at = row.listed.column() - begin;
      if (at >= 0) put(at, row.listed.number());
    }
  }

  // The bytes of an output's next piece.
  const std::byte* block(int64_t output) const { return rows_[output].block; }

 private:
  struct CompactRow {
    __m128i uppers;               // the upper byte by its code
    const std::byte* block;       // the next
    Listed listed;                // nothing where the list is out of order
    const std::byte* disordered;  // the row then: nobody wrote it so
  };

  // Stores a block as two steps of a copy.
  static KLOTSKI_INLINE void put_block(std::byte* tile, const ExpandedBlock& numbers) {
    _mm512_storeu_si512(tile, numbers.lower);
    _mm512_storeu_si512(tile + kTileBytes, numbers.upper);
  }

  const Strip& strip_;
  int64_t outputs_;
  CompactRow rows_[kTileSide];
};

// [16 outputs][16 rows]
std::byte* sums_of(const Strip& strip, int64_t block, int64_t tile) {
  return strip.scratch + (block * kMostTiles + tile) * kTileBytes;
}

void write_tile(const Strip& strip, int64_t block, int64_t tile) {
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

template <int kTiles, int kBlocks>
KLOTSKI_INLINE void zero_sums() {
  zero_tile<0>();
  if constexpr (kBlocks == 2) zero_tile<1>();
  if constexpr (kTiles == 2) zero_tile<2>();
  if constexpr (kTiles == 2 && kBlocks == 2) zero_tile<3>();
}

template <int kTiles, int kBlocks>
KLOTSKI_INLINE void load_sums(const Strip& strip, int64_t block, int64_t tile) {
  load_tile<0>(sums_of(strip, block, tile), kTileRowBytes);
  if constexpr (kBlocks == 2) load_tile<1>(sums_of(strip, block + 1, tile), kTileRowBytes);
  if constexpr (kTiles == 2) load_tile<2>(sums_of(strip, block, tile + 1), kTileRowBytes);
  if constexpr (kTiles == 2 && kBlocks == 2) {
    load_tile<3>(sums_of(strip, block + 1, tile + 1), kTileRowBytes);
  }
}

template <int kTiles, int kBlocks>
KLOTSKI_INLINE void store_sums(const Strip& strip, int64_t block, int64_t tile) {
  store_tile<0>(sums_of(strip, block, tile), kTileRowBytes);
  if constexpr (kBlocks == 2) store_tile<1>(sums_of(strip, block + 1, tile), kTileRowBytes);
  if constexpr (kTiles == 2) store_tile<2>(sums_of(strip, block, tile + 1), kTileRowBytes);
  if constexpr (kTiles == 2 && kBlocks == 2) {
    store_tile<3>(sums_of(strip, block + 1, tile + 1), kTileRowBytes);
  }
}

template <int kTiles, int kBlocks>
void write_out(const Strip& strip, int64_t block, int64_t tile) {
  for (int b = 0; b < kBlocks; ++b) {
    for (int t = 0; t < kTiles; ++t) write_tile(strip, block + b, tile + t);
  }
}

// Some columns of the strip.
struct Piece {
  const Strip& strip;
  int64_t begin;
  int64_t steps;
  TileWeights weights[2];
  Ahead ahead;
  int64_t row_lines;   // lines of `ahead` called for with each row that is expanded
  int64_t step_lines;  // lines of `ahead` called for with each step
};

Piece piece_of(const Strip& strip, int64_t begin) {
  const int64_t steps = quotient_up(least(kPiece, strip.width - begin), kStep);
  const Ahead ahead = after(strip, begin);
  const int64_t all_steps =
      steps * quotient_up(strip.outputs, 2 * kTileSide) * quotient_up(strip.rows, 2 * kBlockRows);
  // A processor waits for few lines at a time: they are spread over all that it does meanwhile.
  const int64_t lines = ahead.count();
  const int64_t expanding = strip.compact_header > 0 ? lines / 2 : 0;
  return {strip,
          begin,
          steps,
          {},
          ahead,
          quotient_up(expanding, strip.outputs),
          quotient_up(lines - expanding, all_steps)};
}

// One or two blocks of rows by one or two tiles of weights. Registers 0 to 3 hold the sums, 4 and 5
// weights, 6 and 7 inputs.
template <int kTiles, int kBlocks>
KLOTSKI_INLINE void add_piece(Piece& piece, int64_t block) {
  const int64_t next_block = block_bytes(piece.strip.width);
  const std::byte* in = piece.strip.blocks + block * next_block + piece.begin / kStep * kTileBytes;
  TileWeights weights = piece.weights[0];
  TileWeights next_weights = piece.weights[kTiles - 1];
  Ahead ahead = piece.ahead;
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
    ahead.fetch(piece.step_lines);
    if constexpr (kBlocks == 2) {
      fetch_inputs(in + kInputsAhead);
      fetch_inputs(in + next_block + kInputsAhead);
    }
    in += kTileBytes;
    weights.data += weights.step;
    next_weights.data += next_weights.step;
  }
  piece.ahead = ahead;
}

std::byte* copy_of(const Strip& strip, int64_t number) {
  return strip.scratch + kSumBytes + number * kCopyBytes;
}

// A tile of a piece, for which there is room at one of the copies.
TileWeights plain_piece(const Piece& piece, int64_t tile, int64_t copy) {
  return plain_tile(piece.strip, tile, copy_of(piece.strip, copy), piece.begin,
                    least(kPiece, piece.strip.width - piece.begin));
}

// A tile of a piece of compact weights, expanded at one of the copies. With each expanded row some
// lines of the next weights are called for.
TileWeights expanded_piece(Piece& piece, int64_t tile, int64_t copy) {
  CompactTile rows(piece.strip, tile, piece.begin);
  std::byte* const to = copy_of(piece.strip, copy);
  for (int64_t n = 0; n < kTileSide; ++n) {
    rows.expand(n, to, piece.begin, least(kPiece, piece.strip.width - piece.begin), nullptr);
    piece.ahead.fetch(piece.row_lines);
  }
  return {to, kTileRowBytes, kTileBytes};
}

// All columns of few rows, by one or two tiles of plain weights.
template <int kTiles, int kBlocks>
void multiply_few(const Strip& strip) {
  zero_sums<kTiles, kBlocks>();
  for (int64_t begin = 0; begin < strip.width; begin += kPiece) {
    Piece piece = piece_of(strip, begin);
    for (int64_t t = 0; t < kTiles; ++t) piece.weights[t] = plain_piece(piece, t, t);
    add_piece<kTiles, kBlocks>(piece, 0);
  }
  store_sums<kTiles, kBlocks>(strip, 0, 0);
  write_out<kTiles, kBlocks>(strip, 0, 0);
}

// The bytes that are read after an output's present piece, which begins at `begin`: its next piece,
// or the first piece of the rows that follow.
KLOTSKI_INLINE const std::byte* read_later(const Strip& strip, const CompactTile& tile,
                                           int64_t output, int64_t begin) {
  if (output >= strip.outputs) return nullptr;
  if (begin + kFewCompactPiece < strip.width) return tile.block(output) + kFewCompactBytes;
  if (!strip.next) return nullptr;
  const std::byte* row = static_cast<const std::byte*>(strip.next) + output * strip.weight_stride;
  const std::byte* first = block_at(row, strip.compact_header, strip.first_column);
  for (int64_t at = 0; at < strip.compact_header; at += kCacheLine) {
    __builtin_prefetch(row + at, 0, 2);
  }
  __builtin_prefetch(first, 0, 2);
  return first;
}

// All columns of few rows, by one tile of compact weights. Between the steps of a piece the next
// piece is expanded, and the piece after that is called for: products wait for each other and calls
// for memory, neither for long enough to do nothing else.
template <int kBlocks>
void multiply_few_compact(const Strip& strip) {
  constexpr int64_t kSteps = kFewCompactPiece / kStep;
  constexpr int64_t kOutputsAStep = kTileSide / kSteps;
  static_assert(kOutputsAStep * kSteps == kTileSide);
  CompactTile tile(strip, 0, 0);
  const auto expand = [&](int64_t output, std::byte* copy, int64_t begin) {
    tile.expand(output, copy, begin, least(kFewCompactPiece, strip.width - begin),
                read_later(strip, tile, output, begin));
  };
  std::byte* copy = copy_of(strip, 0);
  std::byte* next_copy = copy_of(strip, 1);
  for (int64_t n = 0; n < kTileSide; ++n) expand(n, copy, 0);
  const int64_t next_block = block_bytes(strip.width);
  const std::byte* in = strip.blocks;
  zero_sums<1, kBlocks>();
  for (int64_t begin = 0; begin < strip.width; begin += kFewCompactPiece) {
    const int64_t next = begin + kFewCompactPiece;
    const int64_t steps = least(kSteps, quotient_up(strip.width - begin, kStep));
    for (int64_t step = 0; step < steps; ++step, in += kTileBytes) {
      load_tile<6>(in, kTileRowBytes);
      load_tile<4>(copy + step * kTileBytes, kTileRowBytes);
      add_product<0, 4, 6>();
      if constexpr (kBlocks == 2) {
        load_tile<7>(in + next_block, kTileRowBytes);
        add_product<1, 4, 7>();
      }
      if (next >= strip.width) continue;
      for (int64_t n = step * kOutputsAStep; n < (step + 1) * kOutputsAStep; ++n) {
        expand(n, next_copy, next);
      }
    }
    std::byte* const multiplied = copy;
    copy = next_copy;
    next_copy = multiplied;
  }
  store_sums<1, kBlocks>(strip, 0, 0);
  write_out<1, kBlocks>(strip, 0, 0);
}

// Multiplies few rows by at most two tiles of plain weights or one of compact ones.
void multiply_few_rows(const Strip& part) {
  const bool two_blocks = part.rows > kBlockRows;
  if (part.compact_header > 0) {
    return two_blocks ? multiply_few_compact<2>(part) : multiply_few_compact<1>(part);
  }
  if (part.outputs > kTileSide) {
    return two_blocks ? multiply_few<2, 2>(part) : multiply_few<2, 1>(part);
  }
  return two_blocks ? multiply_few<1, 2>(part) : multiply_few<1, 1>(part);
}

// One piece of one or two blocks of rows by one or two tiles of weights.
template <int kTiles, int kBlocks>
void add_tiles(Piece& piece, int64_t block, int64_t tile) {
  if (piece.begin == 0) {
    zero_sums<kTiles, kBlocks>();
  } else {
    load_sums<kTiles, kBlocks>(piece.strip, block, tile);
  }
  add_piece<kTiles, kBlocks>(piece, block);
  store_sums<kTiles, kBlocks>(piece.strip, block, tile);
  if (piece.begin + kPiece < piece.strip.width) return;
  write_out<kTiles, kBlocks>(piece.strip, block, tile);
}

// One piece of all rows by one or two tiles of weights, which stay in the first-level cache
// meanwhile.
template <int kTiles>
void add_rows(Piece& piece, int64_t tile) {
  const Strip& strip = piece.strip;
  for (int64_t t = 0; t < kTiles; ++t) {
    piece.weights[t] = strip.compact_header > 0 ? expanded_piece(piece, tile + t, t)
                                                : plain_piece(piece, tile + t, t);
  }
  const int64_t blocks = quotient_up(strip.rows, kBlockRows);
  int64_t block = 0;
  for (; block + 2 <= blocks; block += 2) add_tiles<kTiles, 2>(piece, block, tile);
  if (block < blocks) add_tiles<kTiles, 1>(piece, block, tile);
}

void multiply_many(const Strip& strip) {
  const int64_t tiles = quotient_up(strip.outputs, kTileSide);
  for (int64_t begin = 0; begin < strip.width; begin += kPiece) {
    Piece piece = piece_of(strip, begin);
    int64_t tile = 0;
    for (; tile + 2 <= tiles; tile += 2) add_rows<2>(piece, tile);
    if (tile < tiles) add_rows<1>(piece, tile);
  }
}

// At most `most` outputs of a strip from output `first` on.
Strip part_of(const Strip& strip, int64_t first, int64_t most) {
  Strip part = strip;
  const int64_t element = strip.compact_header > 0 ? 1 : kElementBytes;
  const auto weight = [&](int64_t output) {
    return static_cast<const std::byte*>(strip.weight) + output * strip.weight_stride * element;
  };
  part.outputs = least(most, strip.outputs - first);
  part.out_offset += first;
  part.weight = weight(first);
  if (first + part.outputs < strip.outputs) part.next = weight(first + part.outputs);
  return part;
}

void fetch_first(const Strip& strip, int64_t columns) {
  Ahead first(strip, strip.weight, 0, columns);
  first.fetch(first.count());
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
// apart: equal columns of many rows then lie in different sets of the caches.
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
  if (strip.rows > kFewRows) {
    fetch_first(strip, kPiece);
    multiply_many(strip);
    return;
  }
  const bool compact = strip.compact_header > 0;
  const int64_t most = compact ? kTileSide : kFewOutputs;
  for (int64_t first = 0; first < strip.outputs; first += most) {
    const Strip part = part_of(strip, first, most);
    if (first == 0) fetch_first(part, compact ? kFewCompactPiece : kPiece);
    multiply_few_rows(part);
  }
}

}  // namespace klotski::cpu::KLOTSKI_ISA
