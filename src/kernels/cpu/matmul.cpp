#include <algorithm>

#include "base/error.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/reference/weight_row.h"

namespace klotski::cpu {

namespace {

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

void add_bias(Rows out, const TensorView& bias, int64_t begin, int64_t end) {
  for (int64_t n = begin; n < end; ++n) {
    const float offset = reference::load_element(bias, n);
    for (int64_t r = 0; r < out.count; ++r) out.row(r)[n] += offset;
  }
}

}  // namespace

void matmul(const Machine& with, Rows out, ConstRows in, const TensorView& weight,
            const TensorView& bias) {
  const WeightType type = weight_type(weight.dtype);
  const int64_t panels = (out.width + kPanelOutputs - 1) / kPanelOutputs;
  const int64_t panel_cost = out.count * in.width * kPanelOutputs;
  share_out(with, panels, panel_cost, [&](int64_t first, int64_t last) {
    for (int64_t panel = first; panel < last; ++panel) {
      const int64_t begin = panel * kPanelOutputs;
      const int64_t end = std::min(begin + kPanelOutputs, out.width);
      with.kernels.matmul_panel({.out = out.data,
                                 .in = in.data,
                                 .weight = weight.data,
                                 .type = type,
                                 .rows = out.count,
                                 .in_width = in.width,
                                 .out_width = out.width,
                                 .begin = begin,
                                 .end = end});
      if (bias.data) add_bias(out, bias, begin, end);
    }
  });
}

}  // namespace klotski::cpu
