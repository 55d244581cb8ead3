#include "kernels/reference/weight_row.h"

#include <cstring>

#include "base/error.h"
#include "tensor/half.h"

namespace klotski::reference {

namespace {

template <typename Stored>
Stored stored_at(const TensorView& tensor, int64_t i) {
  Stored value;
  std::memcpy(&value, tensor.data + i * static_cast<int64_t>(sizeof(Stored)), sizeof(Stored));
  return value;
}

}  // namespace

float load_element(const TensorView& tensor, int64_t i) {
  switch (tensor.dtype) {
    case DType::F32:
      return stored_at<float>(tensor, i);
    case DType::BF16:
      return bf16_to_float(stored_at<uint16_t>(tensor, i));
    case DType::F16:
      return f16_to_float(stored_at<uint16_t>(tensor, i));
    default:
      fail(ErrorKind::internal, "weights of type {} reached a kernel", dtype_name(tensor.dtype));
  }
}

void load_row(const TensorView& tensor, int64_t row, std::span<float> out) {
  const auto width = static_cast<int64_t>(out.size());
  const int64_t first = row * (tensor.row_stride == 0 ? width : tensor.row_stride);
  for (int64_t c = 0; c < width; ++c) {
    out[static_cast<size_t>(c)] = load_element(tensor, first + c);
  }
}

}  // namespace klotski::reference
