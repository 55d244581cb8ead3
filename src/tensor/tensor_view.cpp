#include "tensor/tensor_view.h"

#include <utility>

namespace klotski {

namespace {

// The part of a matrix that begins at byte `at`, with the matrix's distance between rows.
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
  const bool transposed = format_of(matrix.dtype).transposed;
  TensorView view =
      part(matrix, transposed ? 0 : begin * matrix.stride(), {end - begin, matrix.columns()});
  view.whole_rows = matrix.rows_of_matrix();
  view.first_row = matrix.row_of_matrix(begin);
  return view;
}

TensorView elements_between(const TensorView& vector, int64_t begin, int64_t end) {
  check_within(begin, end, vector.shape.at(0));
  TensorView view = vector;
  if (view.data) view.data += bytes_per_row(vector.dtype, begin);
  view.shape = {end - begin};
  return view;
}

TensorView columns_between(const TensorView& matrix, int64_t begin, int64_t end) {
  check_within(begin, end, matrix.columns());
  if (!is_packed(matrix.dtype)) {
    return part(matrix, bytes_per_row(matrix.dtype, begin), {matrix.rows(), end - begin});
  }
  const int64_t block = format_of(matrix.dtype).block_columns;
  if (begin % block != 0) {
    fail(ErrorKind::internal, "expected columns from a multiple of {} on, found {}", block, begin);
  }
  TensorView view = part(matrix, 0, {matrix.rows(), end - begin});
  view.whole_columns = matrix.columns_of_row();
  view.first_column += begin;
  return view;
}

std::vector<BytePlane> planes_of(const TensorView& matrix) {
  if (matrix.shape.size() == 1) {
    const auto bytes = static_cast<uint64_t>(bytes_per_row(matrix.dtype, matrix.shape[0]));
    return {{matrix.data, bytes, 1, bytes}};
  }
  if (matrix.first_column != 0 || matrix.order != ElementOrder::rows) {
    fail(ErrorKind::internal, "planes were asked for of columns from {} on", matrix.first_column);
  }
  const WeightFormat& format = format_of(matrix.dtype);
  if (format.transposed) {
    fail(ErrorKind::internal, "planes were asked for of a matrix of {}", format.name);
  }
  const int64_t whole = matrix.columns_of_row();
  const int64_t row = is_packed(matrix.dtype)
                          ? format.header(whole) + format.blocks_bytes(matrix.columns())
                          : bytes_per_row(matrix.dtype, matrix.columns());
  std::vector<BytePlane> planes = {{matrix.data, static_cast<uint64_t>(row),
                                    static_cast<uint64_t>(matrix.rows()),
                                    static_cast<uint64_t>(matrix.stride())}};
  for (size_t i = 0; i < format.sides.size(); ++i) {
    const SideTensor& side = format.sides[i];
    const int64_t begin = matrix.first_row / side.block_rows;
    const int64_t last = matrix.row_of_matrix(matrix.rows()) - 1;
    const int64_t end = matrix.rows() == 0 ? begin : (last + side.block_rows) / side.block_rows;
    const auto bytes = static_cast<uint64_t>(side.row_bytes(whole));
    const std::byte* data = matrix.sides[i];
    planes.push_back({data == nullptr ? nullptr : data + begin * side.row_bytes(whole), bytes,
                      static_cast<uint64_t>(end - begin), bytes});
  }
  return planes;
}

TensorView with_planes(TensorView matrix, std::span<const std::byte* const> planes) {
  if (matrix.shape.size() == 1) {
    matrix.data = planes[0];
    return matrix;
  }
  const std::vector<BytePlane> copied = planes_of(matrix);
  const WeightFormat& format = format_of(matrix.dtype);
  matrix.whole_columns = is_packed(matrix.dtype) ? matrix.columns_of_row() : 0;
  matrix.data = planes[0];
  matrix.row_stride = static_cast<int64_t>(copied[0].row_bytes);
  const int64_t first_row = matrix.first_row;
  for (size_t i = 0; i < format.sides.size(); ++i) {
    const SideTensor& side = format.sides[i];
    if (first_row % side.block_rows != 0) {
      fail(ErrorKind::internal, "rows from {} on do not begin a block of a side tensor", first_row);
    }
    matrix.sides[i] = planes[i + 1];
  }
  matrix.first_row = 0;
  matrix.whole_rows = 0;
  return matrix;
}

}  // namespace klotski
