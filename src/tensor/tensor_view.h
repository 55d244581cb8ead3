#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/error.h"
#include "tensor/dtype.h"
#include "tensor/format.h"
#include "tensor/shape.h"

namespace klotski {

// How the elements of a tensor follow each other in memory.
enum class ElementOrder {
  rows,      // last dimension fastest, as in files
  arranged,  // a matrix as the operation that multiplies by it has arranged it for itself
};

// A tensor whose bytes belong to someone else: elements packed, but for rows that lie apart.
struct TensorView {
  const std::byte* data = nullptr;
  DType dtype = DType::F32;
  Shape shape;
  ElementOrder order = ElementOrder::rows;
  // Bytes from one row of a matrix to the next, where its order is that of rows; 0: they follow
  // each other.
  int64_t row_stride = 0;
  // Columns of a whole row (0: the view's own), and the columns of it before the view's. In a
  // packed format `data` is where whole rows begin, even where the view has only some of their
  // columns.
  int64_t whole_columns = 0;
  int64_t first_column = 0;
  // Rows of the whole matrix (0: the view's own), its rows before the view's, and the format's side
  // tensors, which are those of the whole matrix. In a transposed format `data` is where the whole
  // matrix begins.
  int64_t whole_rows = 0;
  int64_t first_row = 0;
  std::array<const std::byte*, kMostSideTensors> sides{};

  int64_t rows() const { return matrix_dimension(0); }
  int64_t columns() const { return matrix_dimension(1); }
  int64_t stride() const { return row_stride == 0 ? bytes_per_row(dtype, columns()) : row_stride; }
  bool has_gaps() const { return row_stride != 0 && row_stride != bytes_per_row(dtype, columns()); }
  int64_t columns_of_row() const { return whole_columns == 0 ? columns() : whole_columns; }
  int64_t rows_of_matrix() const { return whole_rows == 0 ? rows() : whole_rows; }
  int64_t row_of_matrix(int64_t row) const { return first_row + row; }

 private:
  int64_t matrix_dimension(size_t index) const {
    if (shape.size() != 2) {
      fail(ErrorKind::internal, "expected a tensor of two dimensions, found {}",
           format_shape(shape));
    }
    return shape[index];
  }
};

// Rows and columns begin .. end - 1 of a matrix whose order is that of rows. Columns of a packed
// format begin with a block of it.
TensorView rows_between(const TensorView& matrix, int64_t begin, int64_t end);
TensorView columns_between(const TensorView& matrix, int64_t begin, int64_t end);
// Elements begin .. end - 1 of a vector of plain elements.
TensorView elements_between(const TensorView& vector, int64_t begin, int64_t end);

// Rows of bytes, `stride` bytes apart, that a view reads: its numbers, or a side tensor.
struct BytePlane {
  const std::byte* data = nullptr;
  uint64_t row_bytes = 0;
  uint64_t rows = 0;
  uint64_t stride = 0;

  uint64_t bytes() const { return rows * row_bytes; }
};
// The planes of a matrix in rows, that of its numbers first, or the only one of a vector. Copied
// with no room between the rows of a plane they are a matrix again (with_planes). The view's
// columns are the first of its rows.
std::vector<BytePlane> planes_of(const TensorView& matrix);
// The view of a copy of these planes, plane i at planes[i].
TensorView with_planes(TensorView matrix, std::span<const std::byte* const> planes);

}  // namespace klotski
