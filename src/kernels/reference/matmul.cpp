#include <vector>

#include "kernels/reference/reference_ops.h"
#include "kernels/reference/weight_row.h"

namespace klotski::reference {

void matmul(Rows out, ConstRows in, const TensorView& weight, const TensorView& bias) {
  std::vector<float> w(static_cast<size_t>(in.width));
  for (int64_t n = 0; n < out.width; ++n) {
    load_row(weight, n, w);
    const float offset = bias.data ? load_element(bias, n) : 0.0f;
    for (int64_t r = 0; r < out.count; ++r) {
      const float* x = in.row(r);
      float sum = 0.0f;
      for (int64_t k = 0; k < in.width; ++k) sum += x[k] * w[static_cast<size_t>(k)];
      out.row(r)[n] = sum + offset;
    }
  }
}

}  // namespace klotski::reference
