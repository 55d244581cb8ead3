// Products of bf16 inputs and bf16 weights by the matrix instruction bfmmla, which multiplies two
// rows by two rows of weights, four columns of each: sums[i][j] += in[i][0..3] . weight[j][0..3].
// Every output is one chain of additions along its row, so how a strip is cut changes nothing.

#include <type_traits>

#include "kernels/cpu/isa/bfmmla_loops.h"
#include "kernels/cpu/isa/kernels_isa.h"
#include "kernels/cpu/isa/vector.h"

namespace klotski::cpu::KLOTSKI_ISA {

namespace {

constexpr int64_t kStep = 8;     // columns of a step: two instructions
constexpr int64_t kPiece = 768;  // columns at a time where weights are laid out anew
constexpr int64_t kOctet = 8;    // outputs whose weights are arranged together
constexpr int kQuad = 8;         // elements of an operand: four columns of two rows

// Pairs of rows and of outputs of a tile. 24 sums hide the instruction's latency and leave eight
// registers for operands.
constexpr int kRowPairs = 4;
constexpr int kOutPairs = 6;

// Up to this number of rows, taking the weights apart anew for every tile is cheaper than laying
// them out.
constexpr int64_t kStreamRows = 16;
// From this number of rows on, the larger tiles of laid-out weights are faster than octets as they
// lie.
constexpr int64_t kLaidOutRows = 96;
static_assert(kLaidOutRows > kStreamRows);

int64_t padded(int64_t width) { return (width + kStep - 1) / kStep * kStep; }

// Eight rows, two and two: [columns / 4][pairs][2 rows][4 columns], two of them to a block of
// kBlockRows. Where there are fewer rows there are fewer pairs: few rows take little of the cache.
struct Block {
  const bfloat16_t* data;
  int64_t pairs;

  // Elements from four columns to the next four.
  int64_t stride() const { return pairs * kQuad; }
  const bfloat16_t* at(int64_t column) const { return data + column / 4 * stride(); }
};

constexpr int64_t kRows = 2 * kRowPairs;
static_assert(kBlockRows % kRows == 0);

// Pairs of rows of half a block, which begins with row `first` and has at most `rows` rows. One
// pair alone is for a single row or two; otherwise two or four make the tiles that are fastest.
int64_t pairs_of(int64_t first, int64_t rows) {
  if (first == 0 && rows <= 2) return 1;
  return rows <= kRows / 2 ? 2 : kRowPairs;
}

Block block_of(const Strip& strip, int64_t row) {
  return {reinterpret_cast<const bfloat16_t*>(strip.blocks) + row * padded(strip.width),
          pairs_of(row % kBlockRows, strip.rows - row)};
}

KLOTSKI_INLINE bfloat16x8_t load(const bfloat16_t* data) {
  bfloat16x8_t lanes;
  __builtin_memcpy(&lanes, data, sizeof(lanes));
  return lanes;
}

// The end of a row of weights, zeros beyond it.
__attribute__((noinline)) bfloat16x8_t load_end(const bfloat16_t* data, int64_t count) {
  bfloat16_t copy[kStep];
  std::memset(copy, 0, sizeof(copy));
  std::memcpy(copy, data, static_cast<size_t>(count) * sizeof(bfloat16_t));
  return load(copy);
}

// Operands of a step: columns 0-3 and 4-7 of two rows.
struct Operands {
  bfloat16x8_t first;
  bfloat16x8_t second;
};

KLOTSKI_INLINE Operands interleave(bfloat16x8_t row, bfloat16x8_t next) {
  const uint64x2_t a = vreinterpretq_u64_bf16(row);
  const uint64x2_t b = vreinterpretq_u64_bf16(next);
  return {vreinterpretq_bf16_u64(vzip1q_u64(a, b)), vreinterpretq_bf16_u64(vzip2q_u64(a, b))};
}

const bfloat16_t* weights_of(const Strip& strip, int64_t output) {
  return static_cast<const bfloat16_t*>(strip.weight) + output * strip.weight_stride;
}

// Sums of `rows` pairs of rows and `outputs` pairs of outputs, each {row 0, row 1} x {output 0,
// output 1}.
template <int rows, int outputs>
struct Tile {
  float32x4_t sums[outputs][rows];

  KLOTSKI_INLINE void add(int q, const bfloat16x8_t (&inputs)[rows], bfloat16x8_t weights) {
    for (int p = 0; p < rows; ++p) sums[q][p] = vbfmmlaq_f32(sums[q][p], inputs[p], weights);
  }

  static KLOTSKI_INLINE void load_inputs(bfloat16x8_t (&inputs)[rows], const bfloat16_t* in) {
    for (int p = 0; p < rows; ++p) inputs[p] = load(in + p * kQuad);
  }

  // Adds a step of weights as they lie in memory; `load_row` reads eight columns of a row.
  template <typename LoadRow>
  KLOTSKI_INLINE void add_in_place(const bfloat16_t* in, int64_t in_stride,
                                   const LoadRow& load_row) {
    bfloat16x8_t first[rows];
    bfloat16x8_t second[rows];
    load_inputs(first, in);
    load_inputs(second, in + in_stride);
    for (int q = 0; q < outputs; ++q) {
      const Operands weights = interleave(load_row(2 * q), load_row(2 * q + 1));
      add(q, first, weights.first);
      add(q, second, weights.second);
    }
  }

  // Adds `quads` times four columns of weights that were laid out.
  KLOTSKI_INLINE void add_laid_out(const bfloat16_t* in, int64_t in_stride,
                                   const bfloat16_t* weights, int64_t quads) {
    if constexpr (rows == 4 && outputs == 6) {
      add_laid_out_4x6(&sums[0][0], in, in_stride * 2, weights, quads);
      return;
    }
    for (int64_t k = 0; k < quads; ++k, in += in_stride, weights += outputs * kQuad) {
      bfloat16x8_t inputs[rows];
      load_inputs(inputs, in);
      for (int q = 0; q < outputs; ++q) add(q, inputs, load(weights + q * kQuad));
    }
  }

  // Writes the sums of the strip's rows and outputs from `row` and `output` on, as far as it has
  // them.
  KLOTSKI_INLINE void write(const Strip& strip, int64_t row, int64_t output) const {
    const int64_t count = least(2 * outputs, strip.outputs - output);
    for (int r = 0; r < 2 * rows && row + r < strip.rows; ++r) {
      float values[2 * outputs];
      for (int q = 0; q < outputs; ++q) {
        const float32x4_t both = sums[q][r / 2];
        vst1_f32(values + 2 * q, r % 2 == 0 ? vget_low_f32(both) : vget_high_f32(both));
      }
      float* out = strip.out[row + r] + strip.out_offset + output;
      if (count == 2 * outputs) {
        __builtin_memcpy(out, values, sizeof(values));
      } else {
        std::memcpy(out, values, static_cast<size_t>(count) * sizeof(float));
      }
    }
  }
};

// All columns of one tile, the weights straight from memory.
template <int rows, int outputs>
void stream_tile(const Strip& strip, int64_t row, int64_t output) {
  Tile<rows, outputs> tile = {};
  const Block block = block_of(strip, row);
  const bfloat16_t* in = block.at(0);
  const bfloat16_t* weights = weights_of(strip, output);
  // A last output without a neighbour is taken for both of its pair.
  const bool single = outputs == 1 && output + 1 == strip.outputs;
  const int64_t stride = single ? 0 : strip.weight_stride;
  int64_t k = 0;
  if constexpr (rows == 4 && outputs == 4) {
    const int64_t steps = strip.width / kStep;
    if (steps > 0) {
      add_in_place_4x4(&tile.sums[0][0], in, 2 * block.stride(), weights, 2 * stride, steps);
    }
    k = steps * kStep;
    in += 2 * steps * block.stride();
  }
  for (; k + kStep <= strip.width; k += kStep, in += 2 * block.stride()) {
    tile.add_in_place(
        in, block.stride(), [&](int n) __attribute__((always_inline)) {
          return load(weights + n * stride + k);
        });
  }
  if (k < strip.width) {
    tile.add_in_place(
        in, block.stride(), [&](int n) __attribute__((always_inline)) {
          return load_end(weights + n * stride + k, strip.width - k);
        });
  }
  tile.write(strip, row, output);
}

// Calls visit<pairs of rows>(first row) for tiles that cover the strip's rows.
template <typename Visit>
KLOTSKI_INLINE void for_row_tiles(const Strip& strip, const Visit& visit) {
  for (int64_t row = 0; row < strip.rows; row += kRows) {
    switch ((strip.rows - row + 1) / 2) {
      case 1:
        visit.template operator()<1>(row);
        break;
      case 2:
        visit.template operator()<2>(row);
        break;
      case 3:
        visit.template operator()<3>(row);
        break;
      default:
        visit.template operator()<kRowPairs>(row);
    }
  }
}

// All rows of `outputs` pairs of outputs.
template <int outputs>
void stream_rows(const Strip& strip, int64_t output) {
  for_row_tiles(strip,
                [&]<int rows>(int64_t row) { stream_tile<rows, outputs>(strip, row, output); });
}

// Few rows: the weights come from memory once, for all of them.
void stream(const Strip& strip) {
  int64_t n = 0;
  if (strip.rows <= 4) {  // registers are left for more outputs at once
    for (; n + 16 <= strip.outputs; n += 16) stream_rows<8>(strip, n);
  }
  for (; n + 8 <= strip.outputs; n += 8) stream_rows<4>(strip, n);
  for (; n < strip.outputs; n += 2) stream_rows<1>(strip, n);
}

// A tile of outputs, some columns of it.
struct Piece {
  int64_t column;
  int64_t columns;
  int64_t output;  // the first
};

// Calls for weights that are wanted soon: a line of each of a tile's rows. They may lie beyond the
// matrix.
KLOTSKI_INLINE void call_for(const bfloat16_t* row, int64_t stride) {
  auto line = reinterpret_cast<uintptr_t>(row);
  for (int i = 0; i < 2 * kOutPairs; ++i, line += static_cast<uintptr_t>(2 * stride)) {
    asm volatile("prfm pldl2strm, [%0]" ::"r"(line));
  }
}

// Lays a piece of the weights out: [columns / 4][kOutPairs][2 rows][4 columns], and calls for the
// piece that comes after it. A tile's outputs beyond the strip's repeat the last one and are never
// written to the results.
void lay_out(bfloat16_t* to, const Strip& strip, const Piece& piece) {
  constexpr int64_t kStride = kOutPairs * kQuad;
  constexpr int64_t kLine = 32;  // elements
  const bfloat16_t* rows[2 * kOutPairs];
  for (int64_t i = 0; i < 2 * kOutPairs; ++i) {
    rows[i] = weights_of(strip, least(piece.output + i, strip.outputs - 1)) + piece.column;
  }
  const bool last = piece.output + 2 * kOutPairs >= strip.outputs;
  const bfloat16_t* next = last ? weights_of(strip, 0) + piece.column + kPiece
                                : rows[0] + 2 * kOutPairs * strip.weight_stride;
  int64_t k = 0;
  const auto put = [&](const auto& load_row) __attribute__((always_inline)) {
    for (int q = 0; q < kOutPairs; ++q) {
      const Operands operands =
          interleave(load_row(rows[2 * q] + k), load_row(rows[2 * q + 1] + k));
      vst1q_bf16(to + q * kQuad, operands.first);
      vst1q_bf16(to + kStride + q * kQuad, operands.second);
    }
  };
  for (; k + kStep <= piece.columns; k += kStep, to += 2 * kStride) {
    if (k % kLine == 0) call_for(next + k, strip.weight_stride);
    put([](const bfloat16_t* row) __attribute__((always_inline)) { return load(row); });
  }
  if (k < piece.columns) {
    put([&](const bfloat16_t* row) { return load_end(row, piece.columns - k); });
  }
}

// Lays a piece of arranged weights out as lay_out() does; in octets every operand lies whole.
void lay_out_octets(bfloat16_t* to, const Strip& strip, const Piece& piece) {
  constexpr int64_t kOctetQuad = kOctet * 4;  // elements of four columns of an octet
  const bfloat16_t* pairs[kOutPairs];
  for (int64_t q = 0; q < kOutPairs; ++q) {
    const int64_t output = least(piece.output + 2 * q, strip.outputs - 2);
    pairs[q] =
        weights_of(strip, output / kOctet * kOctet) + piece.column * kOctet + output % kOctet * 4;
  }
  for (int64_t k = 0; k < piece.columns; k += 4, to += kOutPairs * kQuad) {
    for (int64_t q = 0; q < kOutPairs; ++q, pairs[q - 1] += kOctetQuad) {
      vst1q_bf16(to + q * kQuad, load(pairs[q]));
    }
  }
}

// `rows` pairs of rows by a piece. Sums of the pieces before and after are kept in the scratch
// memory: [tiles][pairs of rows][kOutPairs].
template <int rows>
void add_tile(const Strip& strip, const Piece& piece, int64_t row, const bfloat16_t* weights,
              float32x4_t* all_sums) {
  const int64_t tile_number = piece.output / (2 * kOutPairs);
  auto& tile = *reinterpret_cast<Tile<rows, kOutPairs>*>(
      all_sums + (tile_number * ((strip.rows + 1) / 2) + row / 2) * kOutPairs);
  if (piece.column == 0) tile = {};
  const Block block = block_of(strip, row);
  tile.add_laid_out(block.at(piece.column), block.stride(), weights, padded(piece.columns) / 4);
  if (piece.column + piece.columns == strip.width) tile.write(strip, row, piece.output);
}

// Many rows: a piece of the weights is laid out once and then serves all of them from the cache.
void reuse(const Strip& strip) {
  constexpr int64_t kWeightBytes = 2 * kOutPairs * kPiece * 2;
  static_assert(kStripOutputs % (2 * kOutPairs) == 0);
  static_assert(kWeightBytes + kStripOutputs * kStripRows * 4 <= kStripScratchBytes);
  auto* weights = reinterpret_cast<bfloat16_t*>(strip.scratch);
  auto* sums = reinterpret_cast<float32x4_t*>(strip.scratch + kWeightBytes);
  for (int64_t k = 0; k < strip.width; k += kPiece) {
    for (int64_t n = 0; n < strip.outputs; n += 2 * kOutPairs) {
      const Piece piece{k, least(kPiece, strip.width - k), n};
      if (strip.arranged) {
        lay_out_octets(weights, strip, piece);
      } else {
        lay_out(weights, strip, piece);
      }
      for_row_tiles(
          strip, [&]<int rows>(int64_t row) { add_tile<rows>(strip, piece, row, weights, sums); });
    }
  }
}

// Some columns of an octet, and where the sums of the columns before and after are kept: [octets]
// [pairs of rows][4 pairs of outputs].
struct OctetPiece {
  int64_t column;
  int64_t columns;
  int64_t output;
  float32x4_t* sums;

  template <int rows>
  auto& tile(const Strip& strip, int64_t row) const {
    constexpr int64_t kOctetPairs = kOctet / 2;
    const int64_t pairs = (strip.rows + kRows - 1) / kRows * kRowPairs;  // tiles are whole
    return *reinterpret_cast<Tile<rows, kOctetPairs>*>(sums + (output / kOctet * pairs + row / 2) *
                                                                  kOctetPairs);
  }
  const bfloat16_t* weights(const Strip& strip) const {
    return weights_of(strip, output) + column * kOctet;
  }
};

// Multiplies `rows` pairs of rows by an octet: the rows of a half block, or three quarters of a
// block.
template <int rows>
void add_octet(const Strip& strip, const OctetPiece& piece, int64_t row) {
  auto& kept = piece.tile<rows>(strip, row);
  std::remove_reference_t<decltype(kept)> tile = {};  // kept in registers during the loop
  if (piece.column > 0) tile = kept;
  const Block block = block_of(strip, row);
  const bfloat16_t* in = block.at(piece.column);
  const bfloat16_t* weights = piece.weights(strip);
  const int64_t steps = piece.columns / kStep;
  if constexpr (rows > kRowPairs) {
    const auto add = rows == 5 ? add_octet_5x4 : add_octet_6x4;
    add(&tile.sums[0][0], in, block_of(strip, row + kRows).at(piece.column), weights, 2 * steps);
  } else if constexpr (rows == kRowPairs) {
    add_octet_4x4(&tile.sums[0][0], in, weights, steps);
  } else {
    tile.add_laid_out(in, block.stride(), weights, 2 * steps);
  }
  if (piece.column + piece.columns == strip.width) {
    tile.write(strip, row, piece.output);
  } else {
    kept = tile;
  }
}

// All rows of a piece.
void add_octet_rows(const Strip& strip, const OctetPiece& piece) {
  int64_t row = 0;
  for (; row + kBlockRows <= strip.rows; row += kRows) add_octet<kRowPairs>(strip, piece, row);
  for (; row < strip.rows; row += kRows) {
    const int64_t rows = strip.rows - row;
    if (rows <= 2) return add_octet<1>(strip, piece, row);
    if (rows <= 4) return add_octet<2>(strip, piece, row);
    if (row % kBlockRows == 0 && rows > 8) {
      if (rows <= 10) return add_octet<5>(strip, piece, row);
      if (rows <= 12) return add_octet<6>(strip, piece, row);
    }
    add_octet<kRowPairs>(strip, piece, row);
  }
}

// Weights that were arranged. Where the inputs of all columns stay in the second-level cache an
// octet is read from its beginning to its end; otherwise all octets go by the inputs of some
// columns.
void multiply_octets(const Strip& strip) {
  static_assert(kStripOutputs % kOctet == 0);
  static_assert(kStripOutputs * kStripRows * 4 <= kStripScratchBytes);
  constexpr int64_t kInputs = 256 * 1024;  // elements
  auto* sums = reinterpret_cast<float32x4_t*>(strip.scratch);
  const bool few = strip.rows <= 12;  // one tile: nothing to come back for
  const int64_t columns = few ? strip.width : kPiece;
  const int64_t stretch = strip.rows * strip.width <= kInputs ? strip.width : columns;
  for (int64_t begin = 0; begin < strip.width; begin += stretch) {
    const int64_t end = least(begin + stretch, strip.width);
    for (int64_t n = 0; n < strip.outputs; n += kOctet) {
      for (int64_t k = begin; k < end; k += columns) {
        add_octet_rows(strip, {k, least(columns, end - k), n, sums});
      }
    }
  }
}

// Octets: [outputs / 8][columns / 4][8][4].
void arrange(std::byte* rows, int64_t width, std::byte* scratch) {
  const int64_t bytes = kOctet * width * static_cast<int64_t>(sizeof(bfloat16_t));
  std::memcpy(scratch, rows, static_cast<size_t>(bytes));
  const auto* from = reinterpret_cast<const bfloat16_t*>(scratch);
  auto* to = reinterpret_cast<bfloat16_t*>(rows);
  for (int64_t k = 0; k < width; k += kStep, to += 2 * kOctet * 4) {
    for (int64_t n = 0; n < kOctet; n += 2) {
      const bfloat16_t* row = from + n * width + k;
      const Operands operands = interleave(load(row), load(row + width));
      vst1q_bf16(to + n * 4, operands.first);
      vst1q_bf16(to + kOctet * 4 + n * 4, operands.second);
    }
  }
}

}  // namespace

const Arrangement kArrangement = {kOctet, kStep, arrange};

int64_t block_bytes(int64_t width) {
  return kBlockRows * padded(width) * static_cast<int64_t>(sizeof(bfloat16_t));
}

void pack(const BlockColumns& columns) {
  const int64_t count = columns.end - columns.begin;
  for (int64_t r = 0; r < columns.count; ++r) {
    const int64_t first = r / kRows * kRows;
    const int64_t stride = pairs_of(first, columns.count - first) * kQuad;
    bfloat16_t* to = reinterpret_cast<bfloat16_t*>(columns.block) + first * padded(columns.width) +
                     columns.begin / 4 * stride + (r - first) / 2 * kQuad + r % 2 * 4;
    const float* row = columns.rows[r];
    int64_t k = 0;
    for (; k + 4 <= count; k += 4, to += stride) vst1_bf16(to, vcvt_bf16_f32(vld1q_f32(row + k)));
    for (; k < padded(count); k += 4, to += stride) {
      float32x4_t values = {};
      if (k < count) std::memcpy(&values, row + k, static_cast<size_t>(count - k) * sizeof(float));
      vst1_bf16(to, vcvt_bf16_f32(values));
    }
  }
}

void multiply(const Strip& strip) {
  if (strip.arranged && strip.rows < kLaidOutRows) {
    multiply_octets(strip);
  } else if (strip.rows <= kStreamRows) {
    stream(strip);
  } else {
    reuse(strip);
  }
}

}  // namespace klotski::cpu::KLOTSKI_ISA
