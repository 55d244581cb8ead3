#include "kernels/cpu/formats.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/error.h"
#include "tensor/compact.h"
#include "tensor/format.h"

namespace klotski::cpu {

namespace {

// Expands any format row by row, with the format's own function.
void expand_by_format(const Kernels&, const RowExpansion& rows) {
  const WeightFormat& format = format_of(rows.matrix.dtype);
  const int64_t row_bytes = rows.out_stride * bytes_per_element(format.values);
  for (int64_t n = 0; n < rows.count; ++n) {
    format.expand(rows.matrix, rows.first + n, rows.out + n * row_bytes);
  }
}

// Kernels of plain elements, by WeightType.
constexpr std::array<FormatKernel, 3> kPlain = {{{WeightType::f32, true, nullptr, nullptr},
                                                 {WeightType::f16, true, nullptr, nullptr},
                                                 {WeightType::bf16, true, nullptr, nullptr}}};
constexpr std::array<FormatKernel, 3> kExpanded = {
    {{WeightType::f32, false, nullptr, expand_by_format},
     {WeightType::f16, false, nullptr, expand_by_format},
     {WeightType::bf16, false, nullptr, expand_by_format}}};

constexpr int64_t kExpandedStripBytes = 1 << 20;

}  // namespace

WeightType weight_type(DType dtype) {
  switch (dtype) {
    case DType::F32:
      return WeightType::f32;
    case DType::F16:
      return WeightType::f16;
    case DType::BF16:
      return WeightType::bf16;
    default:
      fail(ErrorKind::internal, "weights of type {} reached a kernel", dtype_name(dtype));
  }
}

const FormatKernel& format_kernel(DType dtype) {
  if (!is_packed(dtype)) return kPlain[static_cast<size_t>(weight_type(dtype))];
  static const std::array<std::pair<DType, const FormatKernel*>, 1> kOwn = {
      {{kCompactType, &compact_kernel()}}};
  for (const auto& [format, kernel] : kOwn) {
    if (format == dtype) return *kernel;
  }
  return kExpanded[static_cast<size_t>(weight_type(format_of(dtype).values))];
}

int64_t element_bytes(WeightType type) { return type == WeightType::f32 ? 4 : 2; }

int64_t most_expanded_outputs(int64_t width, int64_t element_bytes) {
  const int64_t outputs =
      kExpandedStripBytes / (expanded_stride(width, element_bytes) * element_bytes);
  return std::clamp(outputs / kColumnStep * kColumnStep, kColumnStep, kStripOutputs);
}

int64_t most_expanded_bytes(int64_t width, int64_t element_bytes) {
  const int64_t row = expanded_stride(width, element_bytes) * element_bytes;
  return std::min(kStripOutputs * row, std::max(kExpandedStripBytes, kColumnStep * row));
}

}  // namespace klotski::cpu
