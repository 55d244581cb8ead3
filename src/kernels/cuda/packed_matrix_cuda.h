#pragma once

// Kernels for a packed matrix of any format: a type that is made of a view, has `rows` and
// `columns`, and whose eight(row, column) gives eight neighbouring numbers from a multiple of eight
// on, whatever they are beyond the last column.

#include <cstdint>
#include <span>

#include "kernels/cuda/context_cuda.h"
#include "kernels/cuda/few_rows_cuda.h"
#include "kernels/cuda/formats_cuda.h"
#include "kernels/cuda/vectors_cuda.h"

namespace klotski::cuda {

// Up to this number of rows, products of few rows take no longer with float32 inputs.
inline constexpr int64_t kFreeFloatRows = 2;

// A thread expands eight columns.
template <typename Matrix, typename Out>
__global__ void expand_matrix(Out* out, Matrix in, int64_t eights, bool aligned) {
  const int64_t in_row = eights / in.rows;
  for (int64_t i = global_thread(); i < eights; i += all_threads()) {
    const int64_t row = i / in_row;
    const auto column = static_cast<unsigned>(i % in_row) * kVector;
    store(out + row * in.columns + column, in.eight(row, column), in.columns - column, aligned);
  }
}

template <typename Matrix, typename Out>
void expand_packed(const Context& with, Out* out, const TensorView& weight) {
  if (weight.rows() == 0 || weight.columns() == 0) return;
  const Matrix in(weight);
  const int64_t eights = in.rows * ((weight.columns() + kVector - 1) / kVector);
  expand_matrix<<<striding_blocks(eights), kThreads, 0, with.stream>>>(
      out, in, eights, rows_aligned(out, weight.columns()));
  check_launch("expand_matrix");
}

template <typename Matrix>
struct RowOfMatrix {
  const Matrix& matrix;
  int64_t row;

  // Beyond the last column the inputs are zeros, the numbers of the row's last block are not.
  __device__ __forceinline__ Floats eight(unsigned column) const {
    Floats numbers = matrix.eight(row, column);
#pragma unroll
    for (int i = 0; i < kVector; ++i) {
      if (column + i >= matrix.columns) numbers.values[i] = 0.0f;
    }
    return numbers;
  }
  template <typename Replace>
  __device__ __forceinline__ void correct(unsigned, const Replace&) const {}
};

// As products of few rows want a matrix (FewRowsTask).
template <typename Matrix>
struct PackedWeight : Matrix {
  static constexpr int kRounds = 2;
  static constexpr int kRoundsOfOneRow = 4;

  PackedWeight() = default;
  explicit PackedWeight(const TensorView& weight) : Matrix(weight) {}
  __device__ __forceinline__ RowOfMatrix<Matrix> row(int64_t i) const { return {*this, i}; }
};

template <typename Matrix, typename In>
void warp_rows(const Context& with, std::span<const RowsProduct<In>> products) {
  multiply_few<In>(with, products,
                   [](const TensorView& weight) { return PackedWeight<Matrix>(weight); });
}

// A block of threads a token.
template <typename Matrix>
__global__ void look_up_rows(float* out, Matrix table, const TokenId* tokens, bool aligned) {
  float* to = out + int64_t{blockIdx.x} * table.columns;
  const int64_t row = tokens[blockIdx.x];
  for (unsigned k = threadIdx.x * kVector; k < table.columns; k += kThreads * kVector) {
    store(to + k, table.eight(row, k), table.columns - k, aligned);
  }
}

template <typename Matrix>
void look_up(const Context& with, Rows out, const TensorView& table,
             std::span<const TokenId> tokens) {
  const Matrix matrix(table);
  look_up_rows<<<static_cast<unsigned>(out.count), kThreads, 0, with.stream>>>(
      out.data, matrix, tokens.data(), rows_aligned(out.data, out.width));
  check_launch("look_up_rows");
}

// Kernels of a format whose products of few rows are those of warps.
template <typename Matrix>
constexpr FormatKernel packed_kernel() {
  return {.expand = expand_packed<Matrix, __nv_bfloat16>,
          .expand_floats = expand_packed<Matrix, float>,
          .most_few_rows = [](const Context&, const TensorView&) { return kFewRows; },
          .few_rows = warp_rows<Matrix, __nv_bfloat16>,
          .most_few_float_rows = kFewRows,
          .most_free_float_rows = kFreeFloatRows,
          .few_float_rows = warp_rows<Matrix, float>,
          .look_up = look_up<Matrix>};
}

}  // namespace klotski::cuda
