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

// A tensor whose bytes belong to someone else: elements packed.
struct TensorView {
  const std::byte* data = nullptr;
  DType dtype = DType::F32;
  Shape shape;
  ElementOrder order = ElementOrder::rows;

  int64_t rows() const { return matrix_dimension(0); }
  int64_t columns() const { return matrix_dimension(1); }

 private:
  int64_t matrix_dimension(size_t index) const {
    if (shape.size() != 2) {
      fail(ErrorKind::internal, "expected a tensor of two dimensions, found {}",
           format_shape(shape));
    }
    return shape[index];
  }
};

}  // namespace klotski
