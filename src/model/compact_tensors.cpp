#include "model/compact_tensors.h"

#include "tensor/compact.h"

namespace klotski {

bool compact_saves(const Shape& shape) {
  return shape.size() == 2 && shape[1] <= kMostCompactColumns &&
         compact_row_bytes(shape[1]) < bytes_per_row(DType::BF16, shape[1]);
}

NewTensor tensor_in_file(const TensorSpec& spec, DType dtype) {
  if (dtype != DType::BF16_COMPACT) return {spec.name, dtype, spec.shape};
  return {spec.name + std::string(kCompactSuffix),
          DType::U8,
          {spec.shape.at(0), compact_row_bytes(spec.shape.at(1))}};
}

}  // namespace klotski
