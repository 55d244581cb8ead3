#pragma once

#include <cstddef>
#include <cstdint>

#include "base/error.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace klotski {

// A tensor whose bytes belong to someone else: elements packed, last dimension fastest.
struct TensorView {
  const std::byte* data = nullptr;
  DType dtype = DType::F32;
  Shape shape;

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
