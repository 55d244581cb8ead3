#include <cmath>

#include "kernels/reference/reference_processor.h"
#include "kernels/reference/weight_row.h"

namespace klotski::reference {

void ReferenceProcessor::rms_norm(Rows out, ConstRows in, const TensorView& weight, float epsilon,
                                  float offset) const {
  const int64_t width = weight.data ? weight.shape.back() : in.width;
  for (int64_t r = 0; r < in.count; ++r) {
    const float* x = in.row(r);
    float sum = 0.0f;
    for (int64_t c = 0; c < width; ++c) sum += x[c] * x[c];
    const float scale = 1.0f / std::sqrt(sum / static_cast<float>(width) + epsilon);
    for (int64_t c = 0; c < width; ++c) {
      out.row(r)[c] = x[c] * scale * (weight.data ? load_element(weight, c) + offset : 1.0f);
    }
  }
}

void ReferenceProcessor::layer_norm(Rows out, ConstRows in, const TensorView& weight,
                                    const TensorView& bias, float epsilon) const {
  const auto width = static_cast<float>(in.width);
  for (int64_t r = 0; r < in.count; ++r) {
    const float* x = in.row(r);
    float sum = 0.0f;
    for (int64_t c = 0; c < in.width; ++c) sum += x[c];
    const float mean = sum / width;
    float squares = 0.0f;
    for (int64_t c = 0; c < in.width; ++c) squares += (x[c] - mean) * (x[c] - mean);
    const float scale = 1.0f / std::sqrt(squares / width + epsilon);
    for (int64_t c = 0; c < in.width; ++c) {
      const float added = bias.data == nullptr ? 0.0f : load_element(bias, c);
      out.row(r)[c] = (x[c] - mean) * scale * load_element(weight, c) + added;
    }
  }
}

}  // namespace klotski::reference
