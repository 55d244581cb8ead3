#include "kernels/cuda/context_cuda.h"
#include "kernels/cuda/formats_cuda.h"
#include "kernels/cuda/vectors_cuda.h"

namespace klotski::cuda {

namespace {

// A block a token.
template <typename Stored>
__global__ void look_up(float* out, const Stored* table, const TokenId* tokens, int64_t width,
                        bool aligned) {
  const Stored* from = table + int64_t{tokens[blockIdx.x]} * width;
  copy_row(out + int64_t{blockIdx.x} * width, from, width, aligned);
}

}  // namespace

void CudaProcessor::embed(Rows out, const TensorView& table,
                          std::span<const TokenId> tokens) const {
  if (out.count == 0) return;
  if (const FormatKernel* format = format_kernel(table.dtype); format && format->look_up) {
    return format->look_up(context(), out, table, tokens);
  }
  const bool aligned = rows_aligned(out.data, out.width) && rows_aligned(table.data, out.width);
  with_stored_type(table.dtype, [&](auto type) {
    using Stored = decltype(type);
    look_up<<<static_cast<unsigned>(out.count), kThreads, 0, context().stream>>>(
        out.data, reinterpret_cast<const Stored*>(table.data), tokens.data(), out.width, aligned);
  });
  check_launch("look_up");
}

}  // namespace klotski::cuda
