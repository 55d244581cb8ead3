#include "kernels/cuda/context_cuda.h"
#include "kernels/cuda/vectors_cuda.h"
#include "kernels/cuda/warp_cuda.h"

namespace klotski::cuda {

namespace {

template <typename Stored>
struct Norm {
  float* out;
  const float* in;
  const Stored* weight;  // or null
  int64_t rows;
  int64_t width;   // numbers of a row that are normalised
  int64_t stride;  // numbers of a row
  float epsilon;
  bool aligned;  // every row is aligned
};

// kRowThreads threads a row, kThreads a block. Each thread adds up the squares of eight neighbours
// at a time, each warp adds up its threads' sums pairwise, then the sums of a row's warps are added
// one after the other.
template <typename Stored, unsigned kRowThreads>
__global__ void normalise(Norm<Stored> task) {
  const int64_t row = int64_t{blockIdx.x} * (kThreads / kRowThreads) + threadIdx.x / kRowThreads;
  const int64_t thread = threadIdx.x % kRowThreads;
  if (row >= task.rows) return;  // whole warps, and only where a row is no more than one
  const float* in = task.in + row * task.stride;
  float* out = task.out + row * task.stride;

  float sum = 0.0f;
  for (int64_t i = thread * kVector; i < task.width; i += kRowThreads * kVector) {
    const Floats loaded = load(in + i, task.width - i, task.aligned);
#pragma unroll
    for (int k = 0; k < kVector; ++k) sum = fmaf(loaded.values[k], loaded.values[k], sum);
  }
  sum = warp_sum(sum);
  if constexpr (kRowThreads > kWarp) {
    __shared__ float warp_sums[kRowThreads / kWarp];
    if (thread % kWarp == 0) warp_sums[thread / kWarp] = sum;
    __syncthreads();
    sum = 0.0f;
    for (const float of_warp : warp_sums) sum += of_warp;
  }
  const float scale = 1.0f / sqrtf(sum / static_cast<float>(task.width) + task.epsilon);

  for (int64_t i = thread * kVector; i < task.width; i += kRowThreads * kVector) {
    Floats values = load(in + i, task.width - i, task.aligned);
#pragma unroll
    for (int k = 0; k < kVector; ++k) values.values[k] *= scale;
    if (task.weight) {
      const Floats weights = load(task.weight + i, task.width - i, task.aligned);
#pragma unroll
      for (int k = 0; k < kVector; ++k) values.values[k] *= weights.values[k];
    }
    store(out + i, values, task.width - i, task.aligned);
  }
}

template <typename Stored, unsigned kRowThreads>
void launch(const Context& with, const Norm<Stored>& task) {
  normalise<Stored, kRowThreads>
      <<<blocks_of(task.rows, kThreads / kRowThreads), kThreads, 0, with.stream>>>(task);
}

}  // namespace

void CudaProcessor::rms_norm(Rows out, ConstRows in, const TensorView& weight,
                             float epsilon) const {
  constexpr int64_t kWarpWidth = 1024;  // numbers that a warp reads in four rounds
  if (in.count == 0) return;
  with_stored_type(weight.dtype, [&](auto type) {
    using Stored = decltype(type);
    const int64_t width = weight.data ? weight.shape.back() : in.width;
    const bool aligned =
        rows_aligned(in.data, in.width) && is_aligned(out.data) && is_aligned(weight.data);
    const Norm<Stored> task = {out.data, in.data, reinterpret_cast<const Stored*>(weight.data),
                               in.count, width,   in.width,
                               epsilon,  aligned};
    width <= kWarpWidth ? launch<Stored, kWarp>(context(), task)
                        : launch<Stored, kThreads>(context(), task);
  });
  check_launch("normalise");
}

}  // namespace klotski::cuda
