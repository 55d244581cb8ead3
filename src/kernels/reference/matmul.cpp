#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/reference/reference_processor.h"
#include "kernels/reference/weight_row.h"
#include "tensor/half.h"

namespace klotski::reference {

namespace {

float as_multiplied(float value, Precision precision) {
  const float first = rounded_to_bf16(value);
  // A remainder of an infinity would be no number.
  if (precision == Precision::bf16 || !std::isfinite(first)) return first;
  return first + rounded_to_bf16(value - first);
}

}  // namespace

void ReferenceProcessor::matmul(Rows out, ConstRows in, const TensorView& weight,
                                const TensorView& bias, Precision precision) const {
  std::vector<float> rounded;
  const bool rounds = precision != Precision::f32 && is_multiplied_as_bf16(weight.dtype);
  if (rounds) {
    rounded.assign(in.data, in.data + in.count * in.width);
    for (float& value : rounded) value = as_multiplied(value, precision);
    in.data = rounded.data();
  }
  std::vector<float> w(static_cast<size_t>(in.width));
  for (int64_t n = 0; n < out.width; ++n) {
    load_row(weight, n, w);
    if (rounds) std::transform(w.begin(), w.end(), w.begin(), rounded_to_bf16);
    const float offset = bias.data ? load_element(bias, n) : 0.0f;
    for (int64_t r = 0; r < out.count; ++r) {
      const float* row = in.row(r);
      float sum = 0.0f;
      for (int64_t k = 0; k < in.width; ++k) sum += row[k] * w[static_cast<size_t>(k)];
      out.row(r)[n] = sum + offset;
    }
  }
}

void ReferenceProcessor::matmul_by_head(const HeadProducts& products) const {
  const bool rounds =
      products.precision != Precision::f32 && is_multiplied_as_bf16(products.weight.dtype);
  const auto inputs = static_cast<size_t>(products.inputs());
  const auto outputs = static_cast<size_t>(products.outputs());
  std::vector<float> w(static_cast<size_t>(products.weight.columns()));
  for (int64_t token = 0; token < products.in.count; ++token) {
    for (int64_t head = 0; head < products.heads; ++head) {
      std::vector<float> in(inputs);
      std::copy_n(products.in_head(token, head), inputs, in.begin());
      if (rounds) {
        for (float& value : in) value = as_multiplied(value, products.precision);
      }
      const TensorView matrix = products.matrix(head);
      std::vector<float> sums(outputs, 0.0f);
      for (size_t row = 0; row < static_cast<size_t>(products.rows); ++row) {
        load_row(matrix, static_cast<int64_t>(row), w);
        if (rounds) std::transform(w.begin(), w.end(), w.begin(), rounded_to_bf16);
        for (size_t i = 0; i < w.size(); ++i) {
          float& sum = products.transposed ? sums[i] : sums[row];
          sum += w[i] * (products.transposed ? in[row] : in[i]);
        }
      }
      float* out = products.out_head(token, head);
      std::copy(sums.begin(), sums.end(), out);
      std::copy_n(products.in_head(token, head) + inputs, products.kept(), out + outputs);
    }
  }
}

}  // namespace klotski::reference
