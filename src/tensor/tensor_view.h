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
  // Elements from one row of a matrix to the next, where its order is that of rows; 0: they follow
  // each other.
  int64_t row_stride = 0;

  int64_t rows() const { return matrix_dimension(0); }
  int64_t columns() const { return matrix_dimension(1); }
  int64_t stride() const { return row_stride == 0 ? columns() : row_stride; }
  bool has_gaps() const { return row_stride != 0 && row_stride != columns(); }

 private:
  int64_t matrix_dimension(size_t index) const {
    if (shape.size() != 2) {
      fail(ErrorKind::internal, "expected a tensor of two dimensions, found {}",
           format_shape(shape));
    }
    return shape[index];
  }
};

// Rows and columns begin .. end - 1 of a matrix whose order is that of rows.
TensorView rows_between(const TensorView& matrix, int64_t begin, int64_t end);
TensorView columns_between(const TensorView& matrix, int64_t begin, int64_t end);

}  // namespace klotski
