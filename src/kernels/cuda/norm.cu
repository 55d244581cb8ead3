#include "base/error.h"
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
  const Stored* bias;    // or null
  int64_t rows;
  int64_t width;   // numbers of a row that are normalised
  int64_t stride;  // numbers of a row
  float epsilon;
  float offset;  // added to weights
  bool aligned;  // every row is aligned
};

// The sum over a row's kRowThreads threads: each warp adds up its threads' sums pairwise, then the
// sums of a row's warps are added one after the other.
template <unsigned kRowThreads>
__device__ float row_sum(float sum) {
  sum = warp_sum(sum);
  if constexpr (kRowThreads > kWarp) {
    __shared__ float warp_sums[kRowThreads / kWarp];
    __syncthreads();  // sums of an earlier call are read
    if (threadIdx.x % kWarp == 0) warp_sums[threadIdx.x / kWarp] = sum;
    __syncthreads();
    sum = 0.0f;
    for (const float of_warp : warp_sums) sum += of_warp;
  }
  return sum;
}

// kRowThreads threads a row, kThreads a block, eight neighbours of a row for each thread at a time.
// `centred`: the mean is subtracted first.
template <typename Stored, unsigned kRowThreads, bool centred>
__global__ void normalise(Norm<Stored> task) {
  const int64_t row = int64_t{blockIdx.x} * (kThreads / kRowThreads) + threadIdx.x / kRowThreads;
  const int64_t thread = threadIdx.x % kRowThreads;
  if (row >= task.rows) return;  // whole warps, and only where a row is no more than one
  const float* in = task.in + row * task.stride;
  float* out = task.out + row * task.stride;
  const auto width = static_cast<float>(task.width);

  float mean = 0.0f;
  if constexpr (centred) {
    float sum = 0.0f;
    for (int64_t i = thread * kVector; i < task.width; i += kRowThreads * kVector) {
      const Floats loaded = load(in + i, task.width - i, task.aligned);
#pragma unroll
      for (int k = 0; k < kVector; ++k) sum += loaded.values[k];
    }
    mean = row_sum<kRowThreads>(sum) / width;
  }
  float squares = 0.0f;
  for (int64_t i = thread * kVector; i < task.width; i += kRowThreads * kVector) {
    const Floats loaded = load(in + i, task.width - i, task.aligned);
#pragma unroll
    for (int k = 0; k < kVector; ++k) {
      // Zeros stand in for numbers beyond the row, which have no distance to the mean.
      const float value = centred && i + k >= task.width ? 0.0f : loaded.values[k] - mean;
      squares = fmaf(value, value, squares);
    }
  }
  const float scale = 1.0f / sqrtf(row_sum<kRowThreads>(squares) / width + task.epsilon);

  for (int64_t i = thread * kVector; i < task.width; i += kRowThreads * kVector) {
    Floats values = load(in + i, task.width - i, task.aligned);
    Floats added = {};
    if (task.bias) added = load(task.bias + i, task.width - i, task.aligned);
#pragma unroll
    for (int k = 0; k < kVector; ++k) values.values[k] = (values.values[k] - mean) * scale;
    if (task.weight) {
      const Floats weights = load(task.weight + i, task.width - i, task.aligned);
#pragma unroll
      for (int k = 0; k < kVector; ++k) values.values[k] *= weights.values[k] + task.offset;
    }
    if (centred) {
#pragma unroll
      for (int k = 0; k < kVector; ++k) values.values[k] += added.values[k];
    }
    store(out + i, values, task.width - i, task.aligned);
  }
}

template <bool centred>
void launch_norm(const Context& with, Rows out, ConstRows in, const TensorView& weight,
                 const TensorView& bias, float epsilon, float offset = 0.0f) {
  constexpr int64_t kWarpWidth = 1024;  // numbers that a warp reads in four rounds
  if (in.count == 0) return;
  with_stored_type(weight.dtype, [&](auto type) {
    using Stored = decltype(type);
    const int64_t width = weight.data ? weight.shape.back() : in.width;
    const bool aligned = rows_aligned(in.data, in.width) && is_aligned(out.data) &&
                         is_aligned(weight.data) && (bias.data == nullptr || is_aligned(bias.data));
    const Norm<Stored> task = {out.data,
                               in.data,
                               reinterpret_cast<const Stored*>(weight.data),
                               reinterpret_cast<const Stored*>(bias.data),
                               in.count,
                               width,
                               in.width,
                               epsilon,
                               offset,
                               aligned};
    if (width <= kWarpWidth) {
      normalise<Stored, kWarp, centred>
          <<<blocks_of(in.count, kThreads / kWarp), kThreads, 0, with.stream>>>(task);
    } else {
      normalise<Stored, kThreads, centred>
          <<<blocks_of(in.count, 1), kThreads, 0, with.stream>>>(task);
    }
  });
  check_launch("normalise");
}

}  // namespace

void CudaProcessor::rms_norm(Rows out, ConstRows in, const TensorView& weight, float epsilon,
                             float offset) const {
  launch_norm<false>(context(), out, in, weight, {}, epsilon, offset);
}

void CudaProcessor::layer_norm(Rows out, ConstRows in, const TensorView& weight,
                               const TensorView& bias, float epsilon) const {
  if (bias.data != nullptr && bias.dtype != weight.dtype) {
    fail(ErrorKind::bad_model, "a norm's bias is {}, expected {} as its weight",
         dtype_name(bias.dtype), dtype_name(weight.dtype));
  }
  launch_norm<true>(context(), out, in, weight, bias, epsilon);
}

}  // namespace klotski::cuda
