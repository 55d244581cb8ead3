#include "kernels/cpu/formats.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "kernels/cpu/multiply.h"
#include "tensor/compact.h"
#include "tensor/format.h"
#include "tensor/half.h"

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

// Expands a format of F32 numbers row by row, and rounds them.
void expand_rounded(const Kernels&, const RowExpansion& rows) {
  const WeightFormat& format = format_of(rows.matrix.dtype);
  const int64_t columns = rows.matrix.columns();
  std::byte* row = scratch(ScratchUse::rounding, rounding_bytes(rows.matrix.dtype, columns));
  const auto* numbers = reinterpret_cast<const float*>(row);
  auto* out = reinterpret_cast<uint16_t*>(rows.out);
  for (int64_t n = 0; n < rows.count; ++n, out += rows.out_stride) {
    format.expand(rows.matrix, rows.first + n, row);
    std::transform(numbers, numbers + columns, out, float_to_bf16);
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
constexpr FormatKernel kRounded = {WeightType::bf16, false, nullptr, expand_rounded};

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

const FormatKernel& format_kernel(DType dtype, bool rounded) {
  if (!is_packed(dtype)) return kPlain[static_cast<size_t>(weight_type(dtype))];
  if (dtype == kCompactType) return compact_kernel();
  if (const FormatKernel* kernel = block_kernel(dtype, rounded)) return *kernel;
  const WeightType values = weight_type(format_of(dtype).values);
  return rounded && values == WeightType::f32 ? kRounded : kExpanded[static_cast<size_t>(values)];
}

int64_t rounding_bytes(DType dtype, int64_t width) {
  const bool rounds = is_packed(dtype) && &format_kernel(dtype, true) == &kRounded;
  return rounds ? width * static_cast<int64_t>(sizeof(float)) : 0;
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
