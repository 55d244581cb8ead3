#include "synth/stored_tensor.h"

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "tensor/format.h"

namespace klotski {

namespace {

constexpr int64_t kScratchElements = 1 << 14;  // plain numbers that stay in a core's cache

void fill_packed(const TensorFill& fill, const ModelTensor& tensor, int64_t row,
                 std::span<std::byte> out) {
  const WeightFormat& format = format_of(tensor.dtype);
  const int64_t columns = tensor.spec.shape[1];
  const auto row_bytes = static_cast<size_t>(format.row_bytes(columns));
  const auto plain_bytes = static_cast<size_t>(bytes_per_row(format.values, columns));
  const auto count = static_cast<int64_t>(out.size() / row_bytes);
  const int64_t at_once = std::clamp<int64_t>(kScratchElements / columns, 1, count);
  std::vector<std::byte> plain(static_cast<size_t>(at_once) * plain_bytes);
  for (int64_t begin = 0; begin < count; begin += at_once) {
    const int64_t rows = std::min(at_once, count - begin);
    fill.fill(tensor.spec, tensor.layer, static_cast<uint64_t>((row + begin) * columns),
              std::span(plain).first(static_cast<size_t>(rows) * plain_bytes));
    for (int64_t i = 0; i < rows; ++i) {
      if (!format.pack(plain.data() + static_cast<size_t>(i) * plain_bytes, columns,
                       out.data() + static_cast<size_t>(begin + i) * row_bytes)) {
        fail(ErrorKind::internal, "tensor {}: row {} cannot be {}", in_quotes(tensor.spec.name),
             row + begin + i, format.name);
      }
    }
  }
}

}  // namespace

uint64_t grain_bytes(const ModelTensor& tensor) {
  return static_cast<uint64_t>(is_packed(tensor.dtype)
                                   ? bytes_per_row(tensor.dtype, tensor.spec.shape.at(1))
                                   : bytes_per_element(tensor.dtype));
}

void fill_stored(const TensorFill& fill, const ModelTensor& tensor, uint64_t offset,
                 std::span<std::byte> out) {
  const uint64_t grain = grain_bytes(tensor);
  const WeightFormat& format = format_of(tensor.dtype);
  if (offset % grain != 0 || out.size() % grain != 0 || fill.dtype() != format.values) {
    fail(ErrorKind::internal, "tensor {} of {}: {} bytes at {} were asked for of {}",
         in_quotes(tensor.spec.name), format.name, out.size(), offset, dtype_name(fill.dtype()));
  }
  if (!is_packed(tensor.dtype)) {
    fill.fill(tensor.spec, tensor.layer, offset / grain, out);
  } else if (format.pack && format.sides.empty()) {
    fill_packed(fill, tensor, static_cast<int64_t>(offset / grain), out);
  } else {
    fail(ErrorKind::internal, "tensor {}: random weights cannot be {}", in_quotes(tensor.spec.name),
         format.name);
  }
}

}  // namespace klotski
