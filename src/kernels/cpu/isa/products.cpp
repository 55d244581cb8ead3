// Float32 products: weights of any stored type become float32 on the way.

#include "kernels/cpu/isa/kernels_isa.h"
#include "kernels/cpu/isa/tile.h"

namespace klotski::cpu::KLOTSKI_ISA {

namespace {

// Up to this number of rows, converting weights anew for every four rows is cheaper than writing
// the converted weights out.
constexpr int64_t kStreamRows = 32;

// Outputs at a time: a piece of their weights in float32 fits the first-level cache.
constexpr int64_t kPanelOutputs = 16;

// Rows of floats, padded to whole cache lines.
int64_t row_floats(int64_t width) { return (width + 15) / 16 * 16; }

// A piece of a product: which part of the inputs, and whether earlier parts are in the output.
struct Piece {
  const Strip& strip;
  int64_t output;  // the first
  int64_t begin;   // first column of the inputs
  int64_t size;
};

template <int kRows, int kOutputs, typename Weight>
KLOTSKI_INLINE void add_tile(const Piece& piece, int64_t row, int64_t n, const Weight* w,
                             int64_t w_stride) {
  const int64_t in_stride = row_floats(piece.strip.width);
  const float* in = reinterpret_cast<const float*>(piece.strip.blocks) + row * in_stride;
  float sums[kRows][kOutputs];
  tile(sums, in + piece.begin, in_stride, w, w_stride, piece.size);
  KLOTSKI_UNROLL
  for (int r = 0; r < kRows; ++r) {
    float* out = piece.strip.out[row + r] + piece.strip.out_offset + piece.output + n;
    KLOTSKI_UNROLL
    for (int i = 0; i < kOutputs; ++i) {
      out[i] = piece.begin == 0 ? sums[r][i] : out[i] + sums[r][i];
    }
  }
}

// `kRows` rows against `outputs` weight rows.
template <int kRows, typename Weight>
void add_rows(const Piece& piece, int64_t row, int64_t outputs, const Weight* w, int64_t w_stride) {
  // A single row has registers left: more weight rows at a time hide more of the memory's latency.
  constexpr int kWide = kRows == 1 ? 2 * kTileOutputs : kTileOutputs;
  int64_t n = 0;
  for (; n + kWide <= outputs; n += kWide) {
    add_tile<kRows, kWide>(piece, row, n, w + n * w_stride, w_stride);
  }
  for (; n < outputs; ++n) add_tile<kRows, 1>(piece, row, n, w + n * w_stride, w_stride);
}

template <typename Weight>
void add_all_rows(const Piece& piece, int64_t outputs, const Weight* w, int64_t w_stride) {
  static_assert(kTileRows == 4);
  const int64_t rows = piece.strip.rows;
  int64_t row = 0;
  for (; row + 4 <= rows; row += 4) add_rows<4>(piece, row, outputs, w, w_stride);
  if (rows - row == 3) add_rows<3>(piece, row, outputs, w, w_stride);
  if (rows - row == 2) add_rows<2>(piece, row, outputs, w, w_stride);
  if (rows - row == 1) add_rows<1>(piece, row, outputs, w, w_stride);
}

// Few rows: weights go from memory through the registers, a few rows of them side by side.
template <typename Weight>
void stream(const Strip& strip, const Weight* weight) {
  constexpr int64_t kSideBySide = 2 * kTileOutputs;
  for (int64_t n = 0; n < strip.outputs; n += kSideBySide) {
    for (int64_t k = 0; k < strip.width; k += kPiece) {
      add_all_rows({strip, n, k, least(kPiece, strip.width - k)},
                   least(kSideBySide, strip.outputs - n), weight + n * strip.weight_stride + k,
                   strip.weight_stride);
    }
  }
}

// Many rows: a piece of the weights is converted once and then serves all of them from the cache.
template <typename Weight>
void convert_and_reuse(const Strip& strip, const Weight* weight) {
  auto* converted = reinterpret_cast<float*>(strip.scratch);
  for (int64_t k = 0; k < strip.width; k += kPiece) {
    const int64_t size = least(kPiece, strip.width - k);
    for (int64_t n = 0; n < strip.outputs; n += kPanelOutputs) {
      const int64_t outputs = least(kPanelOutputs, strip.outputs - n);
      for (int64_t i = 0; i < outputs; ++i) {
        convert(converted + i * kPiece, weight + (n + i) * strip.weight_stride + k, size);
      }
      add_all_rows({strip, n, k, size}, outputs, converted, kPiece);
    }
  }
}

template <typename Weight>
void multiply_by(const Strip& strip) {
  const auto* weight = static_cast<const Weight*>(strip.weight);
  if (strip.rows <= kStreamRows) {
    stream(strip, weight);
  } else {
    convert_and_reuse(strip, weight);
  }
}

}  // namespace

int64_t block_bytes(int64_t width) {
  return kBlockRows * row_floats(width) * static_cast<int64_t>(sizeof(float));
}

void pack(const BlockColumns& columns) {
  auto* block = reinterpret_cast<float*>(columns.block);
  const int64_t stride = row_floats(columns.width);
  for (int64_t r = 0; r < columns.count; ++r) {
    std::memcpy(block + r * stride + columns.begin, columns.rows[r],
                static_cast<size_t>(columns.end - columns.begin) * sizeof(float));
  }
}

void multiply(const Strip& strip) {
  switch (strip.type) {
    case WeightType::f32:
      return multiply_by<float>(strip);
    case WeightType::f16:
      return multiply_by<F16>(strip);
    case WeightType::bf16:
      return multiply_by<Bf16>(strip);
  }
}

}  // namespace klotski::cpu::KLOTSKI_ISA
