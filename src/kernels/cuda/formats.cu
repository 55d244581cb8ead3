#include "kernels/cuda/formats_cuda.h"

#include "base/error.h"
#include "kernels/cuda/expand_cuda.h"
#include "kernels/cuda/few_rows_cuda.h"
#include "tensor/compact.h"
#include "tensor/format.h"

namespace klotski::cuda {

const FormatKernel* format_kernel(DType dtype) {
  static constexpr FormatKernel kCompact = {expand, kFewRows, few_rows};
  if (!is_packed(dtype)) return nullptr;
  if (dtype == kCompactType) return &kCompact;
  fail(ErrorKind::bad_model,
       "weights of {}: expected a format that a device can multiply by; "
       "run the model on the CPU",
       dtype_name(dtype));
}

}  // namespace klotski::cuda
