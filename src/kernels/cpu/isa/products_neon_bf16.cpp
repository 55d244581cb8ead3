// Products of bf16 inputs and bf16 weights by the matrix instruction bfmmla, which multiplies two
// rows by two rows of weights, four columns of each: sums[i][j] += in[i][0..3] . weight[j][0..3].
// Every output is one chain of additions along its row, so how a strip is cut changes nothing.

#include <arm_neon.h>
#include <string.h>

#include "kernels/cpu/kernels.h"

#define KLOTSKI_INLINE inline __attribute__((always_inline))

namespace klotski::cpu::neon_bf16 {

int64_t block_bytes(int64_t width);
void pack(const BlockColumns& columns);
void multiply(const Strip& strip);

namespace {

constexpr int64_t kStep = 8;     // columns of a step: two instructions
constexpr int64_t kPiece = 768;  // columns at a time where weights are laid out anew
constexpr int kQuad = 8;         // elements of an operand: four columns of two rows

// Pairs of rows and of outputs of a tile. 24 sums hide the instruction's latency and leave eight
// registers for what is multiplied.
constexpr int kTileRows = 4;
constexpr int kTileOutputs = 6;

// Up to so many rows taking the weights apart anew for every tile is cheaper than laying them out.
constexpr int64_t kStreamRows = 16;

int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

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

constexpr int64_t kRows = 2 * kTileRows;
static_assert(kBlockRows % kRows == 0);

Block block_of(const Strip& strip, int64_t row) {
  return {reinterpret_cast<const bfloat16_t*>(strip.blocks) + row * padded(strip.width),
          (least(kRows, strip.rows - row) + 1) / 2};
}

KLOTSKI_INLINE bfloat16x8_t load(const bfloat16_t* data) {
  bfloat16x8_t lanes;
  __builtin_memcpy(&lanes, data, sizeof(lanes));
  return lanes;
}

// The end of a row of weights, zeros beyond it.
__attribute__((noinline)) bfloat16x8_t load_end(const bfloat16_t* data, int64_t count) {
  bfloat16_t copy[kStep];
  memset(copy, 0, sizeof(copy));
  memcpy(copy, data, static_cast<size_t>(count) * sizeof(bfloat16_t));
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

// The two loops that all time is spent in, written out: compilers move loads and sums about until
// the registers run out, which halves the speed. Rows are v24 to v27.
#define KLOTSKI_FOUR(s0, s1, s2, s3, row0, row1, row2, row3, weights) \
  "bfmmla v" #s0 ".4s, v" #row0 ".8h, v" #weights                     \
  ".8h\n"                                                             \
  "bfmmla v" #s1 ".4s, v" #row1 ".8h, v" #weights                     \
  ".8h\n"                                                             \
  "bfmmla v" #s2 ".4s, v" #row2 ".8h, v" #weights                     \
  ".8h\n"                                                             \
  "bfmmla v" #s3 ".4s, v" #row3 ".8h, v" #weights ".8h\n"

#define KLOTSKI_ALL_REGISTERS                                                                    \
  "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11", "v12", "v13", "v14", \
      "v15", "v16", "v17", "v18", "v19", "v20", "v21", "v22", "v23", "v24", "v25", "v26", "v27", \
      "v28", "v29", "v30", "v31", "cc", "memory"

// Four pairs of rows, six pairs of outputs, weights laid out: `quads` times four columns.
// sums: [outputs][rows]. in_stride: bytes from four columns to the next.
void add_laid_out_4x6(float32x4_t* sums, const bfloat16_t* in, int64_t in_stride,
                      const bfloat16_t* weights, int64_t quads) {
  asm volatile(
      "ldp q0, q1, [%[sums]]\n"
      "ldp q2, q3, [%[sums], #32]\n"
      "ldp q4, q5, [%[sums], #64]\n"
      "ldp q6, q7, [%[sums], #96]\n"
      "ldp q8, q9, [%[sums], #128]\n"
      "ldp q10, q11, [%[sums], #160]\n"
      "ldp q12, q13, [%[sums], #192]\n"
      "ldp q14, q15, [%[sums], #224]\n"
      "ldp q16, q17, [%[sums], #256]\n"
      "ldp q18, q19, [%[sums], #288]\n"
      "ldp q20, q21, [%[sums], #320]\n"
      "ldp q22, q23, [%[sums], #352]\n"
      "1:\n"
      "ldp q24, q25, [%[in]]\n"
      "ldp q28, q29, [%[weights]]\n"
      "ldp q26, q27, [%[in], #32]\n"
      "ldp q30, q31, [%[weights], #32]\n"
      "prfm pldl1keep, [%[in], #512]\n"
      "subs %[quads], %[quads], #1\n"
      "add %[in], %[in], %[in_stride]\n"  //
      KLOTSKI_FOUR(0, 1, 2, 3, 24, 25, 26, 27, 28)
      KLOTSKI_FOUR(4, 5, 6, 7, 24, 25, 26, 27, 29)
      "ldp q28, q29, [%[weights], #64]\n"
      "add %[weights], %[weights], #96\n"  //
      KLOTSKI_FOUR(8, 9, 10, 11, 24, 25, 26, 27, 30)
      KLOTSKI_FOUR(12, 13, 14, 15, 24, 25, 26, 27, 31)
      KLOTSKI_FOUR(16, 17, 18, 19, 24, 25, 26, 27, 28)
      KLOTSKI_FOUR(20, 21, 22, 23, 24, 25, 26, 27, 29)
      "b.ne 1b\n"
      "stp q0, q1, [%[sums]]\n"
      "stp q2, q3, [%[sums], #32]\n"
      "stp q4, q5, [%[sums], #64]\n"
      "stp q6, q7, [%[sums], #96]\n"
      "stp q8, q9, [%[sums], #128]\n"
      "stp q10, q11, [%[sums], #160]\n"
      "stp q12, q13, [%[sums], #192]\n"
      "stp q14, q15, [%[sums], #224]\n"
      "stp q16, q17, [%[sums], #256]\n"
      "stp q18, q19, [%[sums], #288]\n"
      "stp q20, q21, [%[sums], #320]\n"
      "stp q22, q23, [%[sums], #352]\n"
      : [in] "+&r"(in), [weights] "+&r"(weights), [quads] "+&r"(quads)
      : [sums] "r"(sums), [in_stride] "r"(in_stride)
      : KLOTSKI_ALL_REGISTERS);
}

// A pair of outputs of the loop below: two rows of weights, taken apart into the operand of the
// first four columns, which is used at once, and that of the last four.
#define KLOTSKI_PAIR(row, next, s0, s1, s2, s3, last) \
  "ldr q24, [%[" #row                                 \
  "], %[at]]\n"                                       \
  "ldr q25, [%[" #next                                \
  "], %[at]]\n"                                       \
  "zip1 v26.2d, v24.2d, v25.2d\n"                     \
  "zip2 v" #last ".2d, v24.2d, v25.2d\n" KLOTSKI_FOUR(s0, s1, s2, s3, 16, 17, 18, 19, 26)

// Four pairs of rows, four pairs of outputs, weights as they lie in memory: `steps` times eight
// columns. sums: [outputs][rows]. in_stride: bytes from four columns to the next; weight_stride:
// from row to row.
void add_in_place_4x4(float32x4_t* sums, const bfloat16_t* in, int64_t in_stride,
                      const bfloat16_t* weights, int64_t weight_stride, int64_t steps) {
  const auto* row = reinterpret_cast<const char*>(weights);
  int64_t at = 0;  // bytes into every row
  asm volatile(
      "movi v0.4s, #0\n movi v1.4s, #0\n movi v2.4s, #0\n movi v3.4s, #0\n"
      "movi v4.4s, #0\n movi v5.4s, #0\n movi v6.4s, #0\n movi v7.4s, #0\n"
      "movi v8.4s, #0\n movi v9.4s, #0\n movi v10.4s, #0\n movi v11.4s, #0\n"
      "movi v12.4s, #0\n movi v13.4s, #0\n movi v14.4s, #0\n movi v15.4s, #0\n"
      "1:\n"
      "ldp q16, q17, [%[in]]\n"
      "ldp q18, q19, [%[in], #32]\n"
      "add %[in], %[in], %[in_stride]\n"
      "ldp q20, q21, [%[in]]\n"
      "ldp q22, q23, [%[in], #32]\n"
      "add %[in], %[in], %[in_stride]\n"
      "subs %[steps], %[steps], #1\n"  //
      KLOTSKI_PAIR(row0, row1, 0, 1, 2, 3, 28)
      KLOTSKI_PAIR(row2, row3, 4, 5, 6, 7, 29)
      KLOTSKI_PAIR(row4, row5, 8, 9, 10, 11, 30)
      KLOTSKI_PAIR(row6, row7, 12, 13, 14, 15, 31)
      KLOTSKI_FOUR(0, 1, 2, 3, 20, 21, 22, 23, 28)
      KLOTSKI_FOUR(4, 5, 6, 7, 20, 21, 22, 23, 29)
      KLOTSKI_FOUR(8, 9, 10, 11, 20, 21, 22, 23, 30)
      KLOTSKI_FOUR(12, 13, 14, 15, 20, 21, 22, 23, 31)
      "add %[at], %[at], #16\n"
      "b.ne 1b\n"
      "stp q0, q1, [%[sums]]\n"
      "stp q2, q3, [%[sums], #32]\n"
      "stp q4, q5, [%[sums], #64]\n"
      "stp q6, q7, [%[sums], #96]\n"
      "stp q8, q9, [%[sums], #128]\n"
      "stp q10, q11, [%[sums], #160]\n"
      "stp q12, q13, [%[sums], #192]\n"
      "stp q14, q15, [%[sums], #224]\n"
      : [in] "+&r"(in), [at] "+&r"(at), [steps] "+&r"(steps)
      : [sums] "r"(sums), [in_stride] "r"(in_stride), [row0] "r"(row),
        [row1] "r"(row + weight_stride), [row2] "r"(row + 2 * weight_stride),
        [row3] "r"(row + 3 * weight_stride), [row4] "r"(row + 4 * weight_stride),
        [row5] "r"(row + 5 * weight_stride), [row6] "r"(row + 6 * weight_stride),
        [row7] "r"(row + 7 * weight_stride)
      : KLOTSKI_ALL_REGISTERS);
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
        memcpy(out, values, static_cast<size_t>(count) * sizeof(float));
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

// All rows of `outputs` pairs of outputs.
template <int outputs>
void stream_rows(const Strip& strip, int64_t output) {
  for (int64_t row = 0; row < strip.rows; row += kRows) {
    switch ((strip.rows - row + 1) / 2) {
      case 1:
        stream_tile<1, outputs>(strip, row, output);
        break;
      case 2:
        stream_tile<2, outputs>(strip, row, output);
        break;
      case 3:
        stream_tile<3, outputs>(strip, row, output);
        break;
      default:
        stream_tile<kTileRows, outputs>(strip, row, output);
    }
  }
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
  for (int i = 0; i < 2 * kTileOutputs; ++i, line += static_cast<uintptr_t>(2 * stride)) {
    asm volatile("prfm pldl2strm, [%0]" ::"r"(line));
  }
}

// Lays a piece of the weights out: [columns / 4][kTileOutputs][2 rows][4 columns], and calls for
// the piece that comes after it. What a tile has beyond the strip's outputs is never written out:
// it repeats the last one.
void lay_out(bfloat16_t* to, const Strip& strip, const Piece& piece) {
  constexpr int64_t kStride = kTileOutputs * kQuad;
  constexpr int64_t kLine = 32;  // elements
  const bfloat16_t* rows[2 * kTileOutputs];
  for (int64_t i = 0; i < 2 * kTileOutputs; ++i) {
    rows[i] = weights_of(strip, least(piece.output + i, strip.outputs - 1)) + piece.column;
  }
  const bool last = piece.output + 2 * kTileOutputs >= strip.outputs;
  const bfloat16_t* next = last ? weights_of(strip, 0) + piece.column + kPiece
                                : rows[0] + 2 * kTileOutputs * strip.weight_stride;
  int64_t k = 0;
  const auto put = [&](const auto& load_row) __attribute__((always_inline)) {
    for (int q = 0; q < kTileOutputs; ++q) {
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

// `rows` pairs of rows by a piece. Sums of the pieces before and after are kept in the scratch
// memory: [tiles][pairs of rows][kTileOutputs].
template <int rows>
void add_tile(const Strip& strip, const Piece& piece, int64_t row, const bfloat16_t* weights,
              float32x4_t* all_sums) {
  const int64_t tile_number = piece.output / (2 * kTileOutputs);
  auto& tile = *reinterpret_cast<Tile<rows, kTileOutputs>*>(
      all_sums + (tile_number * ((strip.rows + 1) / 2) + row / 2) * kTileOutputs);
  if (piece.column == 0) tile = {};
  const Block block = block_of(strip, row);
  tile.add_laid_out(block.at(piece.column), block.stride(), weights, padded(piece.columns) / 4);
  if (piece.column + piece.columns == strip.width) tile.write(strip, row, piece.output);
}

// Many rows: a piece of the weights is laid out once and then serves all of them from the cache.
void reuse(const Strip& strip) {
  constexpr int64_t kWeightBytes = 2 * kTileOutputs * kPiece * 2;
  static_assert(kStripOutputs % (2 * kTileOutputs) == 0);
  static_assert(kWeightBytes + kStripOutputs * kStripRows * 4 <= kStripScratchBytes);
  auto* weights = reinterpret_cast<bfloat16_t*>(strip.scratch);
  auto* sums = reinterpret_cast<float32x4_t*>(strip.scratch + kWeightBytes);
  for (int64_t k = 0; k < strip.width; k += kPiece) {
    for (int64_t n = 0; n < strip.outputs; n += 2 * kTileOutputs) {
      const Piece piece{k, least(kPiece, strip.width - k), n};
      lay_out(weights, strip, piece);
      for (int64_t row = 0; row < strip.rows; row += kRows) {
        switch ((strip.rows - row + 1) / 2) {
          case 1:
            add_tile<1>(strip, piece, row, weights, sums);
            break;
          case 2:
            add_tile<2>(strip, piece, row, weights, sums);
            break;
          case 3:
            add_tile<3>(strip, piece, row, weights, sums);
            break;
          default:
            add_tile<kTileRows>(strip, piece, row, weights, sums);
        }
      }
    }
  }
}

}  // namespace

int64_t block_bytes(int64_t width) {
  return kBlockRows * padded(width) * static_cast<int64_t>(sizeof(bfloat16_t));
}

void pack(const BlockColumns& columns) {
  const int64_t count = columns.end - columns.begin;
  for (int64_t r = 0; r < columns.count; ++r) {
    const int64_t first = r / kRows * kRows;
    const int64_t stride = (least(kRows, columns.count - first) + 1) / 2 * kQuad;
    bfloat16_t* to = reinterpret_cast<bfloat16_t*>(columns.block) + first * padded(columns.width) +
                     columns.begin / 4 * stride + (r - first) / 2 * kQuad + r % 2 * 4;
    const float* row = columns.rows[r];
    int64_t k = 0;
    for (; k + 4 <= count; k += 4, to += stride) vst1_bf16(to, vcvt_bf16_f32(vld1q_f32(row + k)));
    for (; k < padded(count); k += 4, to += stride) {
      float32x4_t values = {};
      if (k < count) memcpy(&values, row + k, static_cast<size_t>(count - k) * sizeof(float));
      vst1_bf16(to, vcvt_bf16_f32(values));
    }
  }
}

void multiply(const Strip& strip) {
  if (strip.rows <= kStreamRows) {
    stream(strip);
  } else {
    reuse(strip);
  }
}

}  // namespace klotski::cpu::neon_bf16
