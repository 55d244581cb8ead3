#include "kernels/cuda/formats_cuda.h"

#include "base/error.h"
#include "kernels/cuda/expand_cuda.h"
#include "kernels/cuda/few_rows_cuda.h"
#include "tensor/compact.h"
#include "tensor/format.h"

namespace klotski::cuda {

const FormatKernel* format_kernel(DType dtype) {
  static constexpr FormatKernel kCompact = {
      .expand = expand,
      .expand_floats = nullptr,
      .most_few_rows = [](const Context&, const TensorView&) { return kFewRows; },
      .few_rows = few_compact_rows,
      .most_few_float_rows = 0,
      .most_free_float_rows = 0,
      .few_float_rows = nullptr,
      .look_up = nullptr};
  if (!is_packed(dtype)) return nullptr;
  if (dtype == kCompactType) return &kCompact;
  if (const FormatKernel* kernel = block_kernel(dtype)) return kernel;
  if (const FormatKernel* kernel = checkpoint_kernel(dtype)) return kernel;
  fail(ErrorKind::bad_model,
       "weights of {}: expected a format that a device can multiply by; "
       "run the model on the CPU",
       dtype_name(dtype));
}

}  // namespace klotski::cuda
