#include "synth/stored_tensor.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "base/noise.h"
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
    fill.fill(tensor.spec, tensor.layer,
              {.dtype = format.values,
               .first = static_cast<uint64_t>((row + begin) * columns),
               .out = std::span(plain).first(static_cast<size_t>(rows) * plain_bytes)});
    for (int64_t i = 0; i < rows; ++i) {
      if (!format.pack(plain.data() + static_cast<size_t>(i) * plain_bytes, columns,
                       out.data() + static_cast<size_t>(begin + i) * row_bytes)) {
        fail(ErrorKind::internal, "tensor {}: row {} cannot be {}", in_quotes(tensor.spec.name),
             row + begin + i, format.name);
      }
    }
  }
}

// Makes MXFP4 blocks, from block `first` of a tensor on, of random FP4 numbers. Their scale is the
// power of two that brings them nearest to the tensor's deviation. Numbers rounded to FP4 would
// take a hundred times as long, and models of this type are large.
void fill_mxfp4(const TensorFill& fill, const TensorSpec& spec, uint64_t first,
                std::span<std::byte> out) {
  constexpr double kFp4Deviation = 2.926;  // of the sixteen FP4 numbers
  constexpr int kExponentOfOne = 127;
  constexpr size_t kBlockBytes = 17;
  const double exponent = std::round(std::log2(fill.deviation(spec) / kFp4Deviation));
  const uint64_t key = fill.key(spec);
  for (uint64_t block = first; !out.empty(); ++block, out = out.subspan(kBlockBytes)) {
    out[0] = static_cast<std::byte>(kExponentOfOne + static_cast<int>(exponent));
    const std::array numbers{noise_bits(key, 2 * block), noise_bits(key, 2 * block + 1)};
    std::memcpy(&out[1], numbers.data(), sizeof(numbers));
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
  if (offset % grain != 0 || out.size() % grain != 0) {
    fail(ErrorKind::internal, "tensor {} of {}: {} bytes at {} were asked for",
         in_quotes(tensor.spec.name), format.name, out.size(), offset);
  }
  if (!is_packed(tensor.dtype)) {
    fill.fill(tensor.spec, tensor.layer,
              {.dtype = tensor.dtype, .first = offset / grain, .out = out});
  } else if (tensor.dtype == DType::MXFP4) {
    fill_mxfp4(fill, tensor.spec, offset / static_cast<uint64_t>(format.block_bytes), out);
  } else if (format.pack && format.sides.empty()) {
    fill_packed(fill, tensor, static_cast<int64_t>(offset / grain), out);
  } else {
    fail(ErrorKind::internal, "tensor {}: random weights cannot be {}", in_quotes(tensor.spec.name),
         format.name);
  }
}

}  // namespace klotski
