#include "kernels/reference/weight_row.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "tensor/compact.h"
#include "tensor/half.h"

namespace klotski::reference {

namespace {

template <typename Stored>
Stored stored_at(const std::byte* data, int64_t i) {
  Stored value;
  std::memcpy(&value, data + i * static_cast<int64_t>(sizeof(Stored)), sizeof(Stored));
  return value;
}

float load(const std::byte* data, DType dtype, int64_t i) {
  switch (dtype) {
    case DType::F32:
      return stored_at<float>(data, i);
    case DType::BF16:
      return bf16_to_float(stored_at<uint16_t>(data, i));
    case DType::F16:
      return f16_to_float(stored_at<uint16_t>(data, i));
    default:
      fail(ErrorKind::internal, "weights of type {} reached a kernel", dtype_name(dtype));
  }
}

}  // namespace

float load_element(const TensorView& tensor, int64_t i) {
  return load(tensor.data, tensor.dtype, i);
}

void load_row(const TensorView& tensor, int64_t row, std::span<float> out) {
  const auto width = static_cast<int64_t>(out.size());
  const std::byte* data =
      tensor.data +
      row * (tensor.row_stride == 0 ? bytes_per_row(tensor.dtype, width) : tensor.row_stride);
  if (tensor.dtype != DType::BF16_COMPACT) {
    for (size_t c = 0; c < out.size(); ++c) {
      out[c] = load(data, tensor.dtype, static_cast<int64_t>(c));
    }
    return;
  }
  std::vector<uint16_t> bits(out.size());
  expand_row(data, tensor.columns_of_row(), tensor.first_column, bits);
  std::transform(bits.begin(), bits.end(), out.begin(), bf16_to_float);
}

}  // namespace klotski::reference
