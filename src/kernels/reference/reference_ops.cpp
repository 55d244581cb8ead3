#include "kernels/reference/reference_ops.h"

namespace klotski {

const Ops& reference_ops() {
  static const Ops kOps = {
      .memory = program_memory(),
      .scratch_bytes = reference::scratch_bytes,
      .expansion_bytes = [](const MostWork&, Precision) { return uint64_t{0}; },
      .embed = reference::embed,
      .rms_norm = reference::rms_norm,
      .matmul = reference::matmul,
      .experts = reference::experts,
      .arrange = [](std::byte*, DType, const Shape&, Precision) { return ElementOrder::rows; },
      .rope = reference::rope,
      .clip = reference::clip,
      .store_kv = reference::store_kv,
      .attention = reference::attention,
      .route = reference::route,
      .sort_by_expert = reference::sort_by_expert,
      .add = reference::add,
      .gather = reference::gather,
      .scatter = reference::scatter,
      .scatter_add = reference::scatter_add,
      .combine = reference::combine,
      .sigmoid = reference::sigmoid,
      .most_likely = reference::most_likely,
  };
  return kOps;
}

}  // namespace klotski
