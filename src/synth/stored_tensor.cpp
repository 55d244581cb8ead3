#include "synth/stored_tensor.h"

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "tensor/compact.h"

namespace klotski {

namespace {

constexpr int64_t kScratchElements = 1 << 14;  // plain numbers that stay in a core's cache

void fill_compact(const TensorFill& fill, const ModelTensor& tensor, int64_t row,
                  std::span<std::byte> out) {
  const int64_t columns = tensor.spec.shape[1];
  const auto row_bytes = static_cast<size_t>(compact_row_bytes(columns));
  const auto count = static_cast<int64_t>(out.size() / row_bytes);
  const int64_t at_once = std::clamp<int64_t>(kScratchElements / columns, 1, count);
  std::vector<uint16_t> plain(static_cast<size_t>(at_once * columns));
  for (int64_t begin = 0; begin < count; begin += at_once) {
    const int64_t rows = std::min(at_once, count - begin);
    const auto numbers = std::span(plain).first(static_cast<size_t>(rows * columns));
    fill.fill(tensor.spec, tensor.layer, static_cast<uint64_t>((row + begin) * columns),
              std::as_writable_bytes(numbers));
    for (int64_t i = 0; i < rows; ++i) {
      const auto one =
          numbers.subspan(static_cast<size_t>(i * columns), static_cast<size_t>(columns));
      if (!compact_row(one, out.data() + static_cast<size_t>(begin + i) * row_bytes)) {
        fail(ErrorKind::internal, "tensor {}: row {} cannot be compact",
             in_quotes(tensor.spec.name), row + begin + i);
      }
    }
  }
}

}  // namespace

uint64_t grain_bytes(const ModelTensor& tensor) {
  return static_cast<uint64_t>(tensor.dtype == DType::BF16_COMPACT
                                   ? compact_row_bytes(tensor.spec.shape.at(1))
                                   : bytes_per_element(tensor.dtype));
}

void fill_stored(const TensorFill& fill, const ModelTensor& tensor, uint64_t offset,
                 std::span<std::byte> out) {
  const uint64_t grain = grain_bytes(tensor);
  const bool compact = tensor.dtype == DType::BF16_COMPACT;
  if (offset % grain != 0 || out.size() % grain != 0 ||
      fill.dtype() != (compact ? DType::BF16 : tensor.dtype)) {
    fail(ErrorKind::internal, "tensor {} of {}: {} bytes at {} were asked for of {}",
         in_quotes(tensor.spec.name), dtype_name(tensor.dtype), out.size(), offset,
         dtype_name(fill.dtype()));
  }
  if (compact) {
    fill_compact(fill, tensor, static_cast<int64_t>(offset / grain), out);
  } else {
    fill.fill(tensor.spec, tensor.layer, offset / grain, out);
  }
}

}  // namespace klotski
