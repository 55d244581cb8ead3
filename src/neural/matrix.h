#pragma once

// Dense float32 matrices for the small networks that predict routing, and one product of which all
// others are made. Rows are tokens or outputs, row-major.

#include <cstdint>
#include <span>
#include <vector>

#include "base/thread_pool.h"

namespace klotski::neural {

struct Matrix {
  int64_t rows = 0;
  int64_t columns = 0;
  std::vector<float> values{};

  Matrix() = default;
  Matrix(int64_t r, int64_t c) : rows(r), columns(c), values(static_cast<size_t>(r * c)) {}

  float* row(int64_t i) { return values.data() + i * columns; }
  const float* row(int64_t i) const { return values.data() + i * columns; }
  std::span<float> row_span(int64_t i) { return {row(i), static_cast<size_t>(columns)}; }
  std::span<const float> row_span(int64_t i) const {
    return {row(i), static_cast<size_t>(columns)};
  }
  bool operator==(const Matrix&) const = default;
};

// Part of a matrix, or a matrix read as its transpose. Owns nothing.
template <typename Float>
struct View {
  Float* data = nullptr;
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t row_stride = 0;     // elements from one row to the next
  int64_t column_stride = 1;  // elements from one column to the next

  Float* row(int64_t i) const { return data + i * row_stride; }
  Float& at(int64_t i, int64_t j) const { return data[i * row_stride + j * column_stride]; }
  View transposed() const { return {data, columns, rows, column_stride, row_stride}; }
};

inline View<float> view(Matrix& m) { return {m.values.data(), m.rows, m.columns, m.columns}; }
inline View<const float> view(const Matrix& m) {
  return {m.values.data(), m.rows, m.columns, m.columns};
}

// Rows [first_row, first_row + rows) and columns [first_column, first_column + columns).
struct Part {
  int64_t first_row = 0;
  int64_t rows = 0;
  int64_t first_column = 0;
  int64_t columns = 0;
};
template <typename AnyMatrix>
auto view(AnyMatrix& m, const Part& part) {
  auto all = view(m);
  all.data += part.first_row * m.columns + part.first_column;
  all.rows = part.rows;
  all.columns = part.columns;
  return all;
}

// out += a * b: [n][k] times [k][m]. `out` has the column stride 1. Each element is summed in the
// order of k, whatever threads share the rows out; without a pool the caller computes all.
void add_product(View<float> out, View<const float> a, View<const float> b,
                 ThreadPool* pool = nullptr);

// out += in * weight^T, for in [n][k], weight [m][k]; fast for one row as well as for many.
void add_linear(Matrix& out, const Matrix& in, const Matrix& weight, ThreadPool* pool = nullptr);

// Runs the body on ranges of 0 .. count - 1, on the pool's threads where there is one.
void share_out(ThreadPool* pool, int64_t count, const ThreadPool::Body& body);

}  // namespace klotski::neural
