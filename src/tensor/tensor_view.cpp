#include "tensor/tensor_view.h"

#include <utility>

#include "tensor/compact.h"

namespace klotski {

namespace {

// What begins at a byte of the matrix, its rows as far apart.
TensorView part(const TensorView& matrix, int64_t at, Shape shape) {
  if (matrix.order != ElementOrder::rows) {
    fail(ErrorKind::internal, "a part was asked for of a matrix that was arranged");
  }
  TensorView view = matrix;
  view.data += at;
  view.shape = std::move(shape);
  view.row_stride = matrix.stride();
  return view;
}

void check_within(int64_t begin, int64_t end, int64_t count) {
  if (begin < 0 || begin > end || end > count) {
    fail(ErrorKind::internal, "expected a part of {}, found {} to {}", count, begin, end);
  }
}

}  // namespace

TensorView rows_between(const TensorView& matrix, int64_t begin, int64_t end) {
  check_within(begin, end, matrix.rows());
  return part(matrix, begin * matrix.stride(), {end - begin, matrix.columns()});
}

TensorView columns_between(const TensorView& matrix, int64_t begin, int64_t end) {
  check_within(begin, end, matrix.columns());
  if (matrix.dtype != DType::BF16_COMPACT) {
    return part(matrix, bytes_per_row(matrix.dtype, begin), {matrix.rows(), end - begin});
  }
  if (begin % kCompactBlock != 0) {
    fail(ErrorKind::internal, "expected columns from a multiple of {} on, found {}", kCompactBlock,
         begin);
  }
  TensorView view = part(matrix, 0, {matrix.rows(), end - begin});
  view.whole_columns = matrix.columns_of_row();
  view.first_column += begin;
  return view;
}

}  // namespace klotski
