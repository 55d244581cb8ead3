// Heads of rows that are split into parts, and gates of results.

#include "base/error.h"
#include "kernels/cuda/context_cuda.h"
#include "kernels/cuda/vectors_cuda.h"

namespace klotski::cuda {

namespace {

struct SplitPart {
  float* out;
  int64_t out_width;  // numbers of a row of `out`
  int64_t first;
  int64_t width;
};

struct Split {
  const float* in;
  int64_t heads;  // heads of a row
  int64_t head_width;
  int count;
  SplitPart parts[kMostHeadParts];
};

// One block for each head of each row.
__global__ void split_heads_kernel(Split task) {
  const int64_t row = blockIdx.x / task.heads;
  const int64_t head = blockIdx.x % task.heads;
  const float* in = task.in + int64_t{blockIdx.x} * task.head_width;
  for (int p = 0; p < task.count; ++p) {
    const SplitPart& part = task.parts[p];
    float* out = part.out + row * part.out_width + part.first + head * part.width;
    for (int64_t i = threadIdx.x; i < part.width; i += blockDim.x) out[i] = in[i];
    in += part.width;
  }
}

template <OutputGate kFunction>
__global__ void apply_gates_kernel(float* values, const float* gates, int64_t count, bool aligned) {
  for (int64_t i = global_thread() * kVector; i < count; i += all_threads() * kVector) {
    Floats changed = load(values + i, count - i, aligned);
    const Floats loaded = load(gates + i, count - i, aligned);
#pragma unroll
    for (int k = 0; k < kVector; ++k) {
      const float gate = loaded.values[k];
      const float sigmoid = 1.0f / (1.0f + expf(-gate));
      changed.values[k] *= kFunction == OutputGate::silu ? gate * sigmoid : sigmoid;
    }
    store(values + i, changed, count - i, aligned);
  }
}

}  // namespace

void CudaProcessor::split_heads(ConstRows in, int64_t heads,
                                std::span<const HeadPart> parts) const {
  constexpr unsigned kSplitThreads = 128;
  if (parts.size() > kMostHeadParts) {
    fail(ErrorKind::internal, "heads are split into {} parts, at most {} are possible",
         parts.size(), kMostHeadParts);
  }
  if (in.count == 0) return;
  Split task = {in.data, heads, in.width / heads, static_cast<int>(parts.size()), {}};
  for (size_t p = 0; p < parts.size(); ++p) {
    task.parts[p] = {parts[p].out.data, parts[p].out.width, parts[p].first, parts[p].width};
  }
  const auto blocks = static_cast<unsigned>(in.count * heads);
  split_heads_kernel<<<blocks, kSplitThreads, 0, context().stream>>>(task);
  check_launch("split_heads");
}

void CudaProcessor::apply_gates(Rows values, ConstRows gates, OutputGate function) const {
  const int64_t count = values.count * values.width;
  if (count == 0) return;
  const bool aligned = is_aligned(values.data) && is_aligned(gates.data);
  const unsigned blocks = striding_blocks((count + kVector - 1) / kVector);
  const auto kernel = function == OutputGate::silu ? apply_gates_kernel<OutputGate::silu>
                                                   : apply_gates_kernel<OutputGate::sigmoid>;
  kernel<<<blocks, kThreads, 0, context().stream>>>(values.data, gates.data, count, aligned);
  check_launch("apply_gates");
}

}  // namespace klotski::cuda
