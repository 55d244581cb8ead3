#pragma once

#include "forward/layer.h"

namespace klotski {

// out = norm of whole rows, of the model's kind; out may be in. `bias` has no data where the
// model's norms have none.
inline void norm_rows(const Arithmetic& with, Rows out, ConstRows in, const TensorView& weight,
                      const TensorView& bias) {
  if (with.model.norm == NormKind::rms) {
    with.ops.rms_norm(out, in, weight, with.model.norm_epsilon, with.model.norm_offset);
  } else {
    with.ops.layer_norm(out, in, weight, bias, with.model.norm_epsilon);
  }
}

}  // namespace klotski
