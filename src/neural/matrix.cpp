#include "neural/matrix.h"

#include <algorithm>
#include <cstring>

namespace klotski::neural {

namespace {

// Rows and columns of a tile of the result. Its 64 sums stay in vector registers.
constexpr int64_t kTileRows = 4;
constexpr int64_t kTileColumns = 16;
// Multiplications below which threads would take longer to start than to multiply.
constexpr int64_t kLeastShared = 1 << 17;
// Rows below which transposing the weights would take longer than dot products.
constexpr int64_t kLeastTransposed = 8;

// Four floats that the compiler keeps in one register of any instruction set it compiles for.
using Lanes = float __attribute__((vector_size(16)));
constexpr int64_t kLanes = 4;
constexpr int64_t kTileVectors = kTileColumns / kLanes;

Lanes load(const float* from) {
  Lanes lanes;
  std::memcpy(&lanes, from, sizeof(lanes));
  return lanes;
}

float dot(const float* a, const float* b, int64_t count) {
  Lanes sums[4] = {};  // kept apart, so that no addition waits for the one before
  int64_t i = 0;
  for (; i + 4 * kLanes <= count; i += 4 * kLanes) {
    for (int64_t s = 0; s < 4; ++s) sums[s] += load(a + i + s * kLanes) * load(b + i + s * kLanes);
  }
  const Lanes all = (sums[0] + sums[1]) + (sums[2] + sums[3]);
  float sum = (all[0] + all[1]) + (all[2] + all[3]);
  for (; i < count; ++i) sum += a[i] * b[i];
  return sum;
}

// One tile of out += a * b, with `a` and `b` cut to the tile; `b` has the column stride 1.
void add_tile(View<float> out, View<const float> a, View<const float> b) {
  Lanes sums[kTileRows][kTileVectors] = {};
  for (int64_t k = 0; k < a.columns; ++k) {
    const float* from = b.row(k);
    const Lanes columns[kTileVectors] = {load(from), load(from + kLanes), load(from + 2 * kLanes),
                                         load(from + 3 * kLanes)};
    for (int64_t i = 0; i < kTileRows; ++i) {
      const float factor = a.at(i, k);
      for (int64_t v = 0; v < kTileVectors; ++v) sums[i][v] += factor * columns[v];
    }
  }
  for (int64_t i = 0; i < kTileRows; ++i) {
    for (int64_t v = 0; v < kTileVectors; ++v) {
      float* to = out.row(i) + v * kLanes;
      const Lanes sum = load(to) + sums[i][v];
      std::memcpy(to, &sum, sizeof(sum));
    }
  }
}

// Like add_tile() for what is left at the edges, of any size up to a tile's.
void add_edge(View<float> out, View<const float> a, View<const float> b) {
  for (int64_t i = 0; i < out.rows; ++i) {
    float sums[kTileColumns] = {};
    for (int64_t k = 0; k < a.columns; ++k) {
      const float factor = a.at(i, k);
      const float* from = b.row(k);
      for (int64_t j = 0; j < out.columns; ++j) sums[j] += factor * from[j];
    }
    for (int64_t j = 0; j < out.columns; ++j) out.row(i)[j] += sums[j];
  }
}

void add_rows(View<float> out, View<const float> a, View<const float> b, int64_t begin,
              int64_t end) {
  for (int64_t j = 0; j < out.columns; j += kTileColumns) {
    const int64_t columns = std::min(kTileColumns, out.columns - j);
    const View<const float> b_part{b.data + j, b.rows, columns, b.row_stride};
    for (int64_t i = begin; i < end; i += kTileRows) {
      const int64_t rows = std::min(kTileRows, end - i);
      const View<float> out_part{out.row(i) + j, rows, columns, out.row_stride};
      const View<const float> a_part{a.row(i), rows, a.columns, a.row_stride, a.column_stride};
      const bool whole = rows == kTileRows && columns == kTileColumns;
      whole ? add_tile(out_part, a_part, b_part) : add_edge(out_part, a_part, b_part);
    }
  }
}

Matrix copied(View<const float> from) {
  Matrix to(from.rows, from.columns);
  for (int64_t i = 0; i < from.rows; ++i) {
    for (int64_t j = 0; j < from.columns; ++j) to.row(i)[j] = from.at(i, j);
  }
  return to;
}

}  // namespace

void share_out(ThreadPool* pool, int64_t count, const ThreadPool::Body& body) {
  pool ? pool->parallel_for(count, body) : body(0, count);
}

void add_product(View<float> out, View<const float> a, View<const float> b, ThreadPool* pool) {
  if (b.column_stride != 1) {
    const Matrix dense = copied(b);
    return add_product(out, a, view(dense), pool);
  }
  if (out.rows * out.columns * a.columns < kLeastShared) pool = nullptr;
  const int64_t tiles = (out.rows + kTileRows - 1) / kTileRows;
  share_out(pool, tiles, [&](int64_t begin, int64_t end) {
    add_rows(out, a, b, begin * kTileRows, std::min(end * kTileRows, out.rows));
  });
}

void add_linear(Matrix& out, const Matrix& in, const Matrix& weight, ThreadPool* pool) {
  if (in.rows >= kLeastTransposed) {
    return add_product(view(out), view(in), view(weight).transposed(), pool);
  }
  for (int64_t n = 0; n < in.rows; ++n) {
    for (int64_t m = 0; m < weight.rows; ++m) {
      out.row(n)[m] += dot(in.row(n), weight.row(m), in.columns);
    }
  }
}

}  // namespace klotski::neural
