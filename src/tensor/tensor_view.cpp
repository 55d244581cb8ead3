#include "tensor/tensor_view.h"

#include <utility>

namespace klotski {

namespace {

// What begins at an element of the matrix, its rows as far apart.
TensorView part(const TensorView& matrix, int64_t element, Shape shape) {
  if (matrix.order != ElementOrder::rows) {
    fail(ErrorKind::internal, "a part was asked for of a matrix that was arranged");
  }
  TensorView view = matrix;
  view.data += element * bytes_per_element(matrix.dtype);
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
  return part(matrix, begin, {matrix.rows(), end - begin});
}

}  // namespace klotski
