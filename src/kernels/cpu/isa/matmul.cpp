#include "kernels/cpu/isa/kernels_isa.h"
#include "kernels/cpu/isa/tile.h"

namespace klotski::cpu::KLOTSKI_ISA {

namespace {

// A piece of a product: which part of the inputs, and whether earlier parts are in the output.
struct Piece {
  float* out;
  int64_t out_stride;
  const float* in;
  int64_t in_stride;
  int64_t size;
  bool first;
};

template <int kRows, int kOutputs, typename Weight>
KLOTSKI_INLINE void add_tile(const Piece& piece, int64_t row, int64_t n, const Weight* w,
                             int64_t w_stride) {
  float sums[kRows][kOutputs];
  tile(sums, piece.in + row * piece.in_stride, piece.in_stride, w, w_stride, piece.size);
  for (int r = 0; r < kRows; ++r) {
    float* out = piece.out + (row + r) * piece.out_stride + n;
    for (int i = 0; i < kOutputs; ++i) out[i] = piece.first ? sums[r][i] : out[i] + sums[r][i];
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
void add_all_rows(const Piece& piece, int64_t rows, int64_t outputs, const Weight* w,
                  int64_t w_stride) {
  static_assert(kTileRows == 4);
  int64_t row = 0;
  for (; row + 4 <= rows; row += 4) add_rows<4>(piece, row, outputs, w, w_stride);
  if (rows - row == 3) add_rows<3>(piece, row, outputs, w, w_stride);
  if (rows - row == 2) add_rows<2>(piece, row, outputs, w, w_stride);
  if (rows - row == 1) add_rows<1>(piece, row, outputs, w, w_stride);
}

Piece piece_at(const MatmulPanel& panel, int64_t output, int64_t k) {
  const int64_t left = panel.in_width - k;
  return {panel.out + output,
          panel.out_width,
          panel.in + k,
          panel.in_width,
          left < kPiece ? left : kPiece,
          k == 0};
}

// Up to so many rows converting weights anew for every four of them is cheaper than writing them
// out.
constexpr int64_t kStreamRows = 32;

// Few rows: weights go from memory through the registers, a few rows of them side by side.
template <typename Weight>
void stream(const MatmulPanel& panel, const Weight* weight) {
  constexpr int64_t kSideBySide = 2 * kTileOutputs;
  for (int64_t n = panel.begin; n < panel.end; n += kSideBySide) {
    const int64_t outputs = panel.end - n < kSideBySide ? panel.end - n : kSideBySide;
    for (int64_t k = 0; k < panel.in_width; k += kPiece) {
      add_all_rows(piece_at(panel, n, k), panel.rows, outputs, weight + n * panel.in_width + k,
                   panel.in_width);
    }
  }
}

// Many rows: a piece of the weights is converted once and then serves all of them from the cache.
template <typename Weight>
void convert_and_reuse(const MatmulPanel& panel, const Weight* weight) {
  alignas(64) float converted[kPanelOutputs * kPiece];
  const int64_t outputs = panel.end - panel.begin;
  for (int64_t k = 0; k < panel.in_width; k += kPiece) {
    const Piece piece = piece_at(panel, panel.begin, k);
    for (int64_t n = 0; n < outputs; ++n) {
      const Weight* from = weight + (panel.begin + n) * panel.in_width + k;
      float* to = converted + n * kPiece;
      int64_t i = 0;
      for (; i + kLanes <= piece.size; i += kLanes) store(to + i, load(from + i));
      if (i < piece.size) store(to + i, load(from + i, piece.size - i), piece.size - i);
    }
    add_all_rows(piece, panel.rows, outputs, converted, kPiece);
  }
}

template <typename Weight>
void multiply(const MatmulPanel& panel) {
  const auto* weight = static_cast<const Weight*>(panel.weight);
  if (panel.rows <= kStreamRows) {
    stream(panel, weight);
  } else {
    convert_and_reuse(panel, weight);
  }
}

}  // namespace

void matmul_panel(const MatmulPanel& panel) {
  switch (panel.type) {
    case WeightType::f32:
      return multiply<float>(panel);
    case WeightType::f16:
      return multiply<F16>(panel);
    case WeightType::bf16:
      return multiply<Bf16>(panel);
  }
}

}  // namespace klotski::cpu::KLOTSKI_ISA
