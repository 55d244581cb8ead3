#pragma once

#include "kernels/cuda/context_cuda.h"
#include "kernels/ops.h"

namespace klotski::cuda {

// Routers have about as many outputs at most.
inline constexpr int64_t kFewOutputs = 256;

// out = in * weight^T in float32, whatever the type of the weights. A row's result depends on
// nothing but the row.
void few_outputs(const Context& with, Rows out, ConstRows in, const TensorView& weight);

}  // namespace klotski::cuda
