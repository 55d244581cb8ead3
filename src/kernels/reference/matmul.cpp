#include <cmath>
#include <vector>

#include "kernels/reference/reference_ops.h"
#include "kernels/reference/weight_row.h"
#include "tensor/half.h"

namespace klotski::reference {

namespace {

float rounded(float value) { return bf16_to_float(float_to_bf16(value)); }

float as_multiplied(float value, Precision precision) {
  const float first = rounded(value);
  // A remainder of an infinity would be no number.
  if (precision == Precision::bf16 || !std::isfinite(first)) return first;
  return first + rounded(value - first);
}

}  // namespace

void matmul(Rows out, ConstRows in, const TensorView& weight, const TensorView& bias,
            Precision precision) {
  std::vector<float> x(in.data, in.data + in.count * in.width);
  if (precision != Precision::f32 && weight.dtype == DType::BF16) {
    for (float& value : x) value = as_multiplied(value, precision);
  }
  std::vector<float> w(static_cast<size_t>(in.width));
  for (int64_t n = 0; n < out.width; ++n) {
    load_row(weight, n, w);
    const float offset = bias.data ? load_element(bias, n) : 0.0f;
    for (int64_t r = 0; r < out.count; ++r) {
      const float* row = x.data() + r * in.width;
      float sum = 0.0f;
      for (int64_t k = 0; k < in.width; ++k) sum += row[k] * w[static_cast<size_t>(k)];
      out.row(r)[n] = sum + offset;
    }
  }
}

}  // namespace klotski::reference
