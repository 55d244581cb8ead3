#include "kernels/reference/reference_ops.h"

namespace klotski {

const Ops& reference_ops() {
  static constexpr Ops kOps = {
      .embed = reference::embed,
      .rms_norm = reference::rms_norm,
      .matmul = reference::matmul,
      .experts = reference::experts,
      .arrange = [](std::byte*, DType, const Shape&, Precision) { return ElementOrder::rows; },
      .rope = reference::rope,
      .attention = reference::attention,
      .route = reference::route,
      .add = reference::add,
      .gather = reference::gather,
      .combine = reference::combine,
      .sigmoid = reference::sigmoid,
  };
  return kOps;
}

}  // namespace klotski
