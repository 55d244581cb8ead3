#pragma once

#include <cstddef>
#include <cstdint>

#include "base/error.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace klotski {

// How the elements of a tensor follow each other in memory.
enum class ElementOrder {
  rows,      // last dimension fastest, as in files
  arranged,  // of matrices: as the arithmetic that multiplies by them has arranged them for itself
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
  // Rows of BF16_COMPACT begin with what all of their columns need: `data` is where the whole row
  // begins. Its columns (0: the view's own), and those of them that come before the view's.
  int64_t whole_columns = 0;
  int64_t first_column = 0;

  int64_t rows() const { return matrix_dimension(0); }
  int64_t columns() const { return matrix_dimension(1); }
  int64_t stride() const { return row_stride == 0 ? bytes_per_row(dtype, columns()) : row_stride; }
  bool has_gaps() const { return row_stride != 0 && row_stride != bytes_per_row(dtype, columns()); }
  int64_t columns_of_row() const { return whole_columns == 0 ? columns() : whole_columns; }

 private:
  int64_t matrix_dimension(size_t index) const {
    if (shape.size() != 2) {
      fail(ErrorKind::internal, "expected a tensor of two dimensions, found {}",
           format_shape(shape));
    }
    return shape[index];
  }
};

// Rows and columns begin .. end - 1 of a matrix whose order is that of rows. Columns of
// BF16_COMPACT begin at a multiple of kCompactBlock.
TensorView rows_between(const TensorView& matrix, int64_t begin, int64_t end);
TensorView columns_between(const TensorView& matrix, int64_t begin, int64_t end);

}  // namespace klotski
