#include "kernels/reference/weight_row.h"

#include <cstring>
#include <vector>

#include "base/error.h"
#include "tensor/format.h"
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
  const auto convert = [&](const std::byte* numbers, DType dtype) {
    for (int64_t c = 0; c < width; ++c) out[static_cast<size_t>(c)] = load(numbers, dtype, c);
  };
  if (is_packed(tensor.dtype)) {
    const WeightFormat& format = format_of(tensor.dtype);
    std::vector<std::byte> numbers(static_cast<size_t>(bytes_per_row(format.values, width)));
    format.expand(tensor, row, numbers.data());
    return convert(numbers.data(), format.values);
  }
  const int64_t stride =
      tensor.row_stride == 0 ? bytes_per_row(tensor.dtype, width) : tensor.row_stride;
  convert(tensor.data + row * stride, tensor.dtype);
}

}  // namespace klotski::reference
