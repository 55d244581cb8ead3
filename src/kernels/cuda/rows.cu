#include "kernels/cuda/context_cuda.h"
#include "kernels/cuda/vectors_cuda.h"

namespace klotski::cuda {

namespace {

int64_t vectors_in(int64_t count) { return (count + kVector - 1) / kVector; }

// values[i] = function(values[i])
template <typename Function>
__global__ void change_each(float* values, int64_t count, bool aligned, Function function) {
  for (int64_t i = global_thread() * kVector; i < count; i += all_threads() * kVector) {
    Floats changed = load(values + i, count - i, aligned);
#pragma unroll
    for (int k = 0; k < kVector; ++k) changed.values[k] = function(changed.values[k]);
    store(values + i, changed, count - i, aligned);
  }
}

template <typename Function>
void launch_change(const Context& with, std::span<float> values, const Function& function) {
  if (values.empty()) return;
  const auto count = static_cast<int64_t>(values.size());
  change_each<<<striding_blocks(vectors_in(count)), kThreads, 0, with.stream>>>(
      values.data(), count, is_aligned(values.data()), function);
  check_launch("change_each");
}

struct Clip {
  float limit;
  // A NaN stays one.
  __device__ float operator()(float value) const {
    return value < -limit ? -limit : limit < value ? limit : value;
  }
};

struct Scale {
  float factor;
  __device__ float operator()(float value) const { return value * factor; }
};

struct Sigmoid {
  __device__ float operator()(float value) const { return 1.0f / (1.0f + expf(-value)); }
};

// The first `count` of eight neighbours.
__device__ __forceinline__ void add_some(float* out, const float* in, int64_t count, bool aligned) {
  Floats sums = load(out, count, aligned);
  const Floats added = load(in, count, aligned);
#pragma unroll
  for (int k = 0; k < kVector; ++k) sums.values[k] += added.values[k];
  store(out, sums, count, aligned);
}

__global__ void add_each(float* out, const float* in, int64_t count, bool aligned) {
  for (int64_t i = global_thread() * kVector; i < count; i += all_threads() * kVector) {
    add_some(out + i, in + i, count - i, aligned);
  }
}

// Adds a row with all threads of a block.
__device__ __forceinline__ void add_row(float* to, const float* from, int64_t width, bool aligned) {
  for (int64_t i = threadIdx.x * kVector; i < width; i += kThreads * kVector) {
    add_some(to + i, from + i, width - i, aligned);
  }
}

// A block a row.
__global__ void gather_rows(float* out, const float* in, const int32_t* rows, int64_t width,
                            bool aligned) {
  const float* from = in + int64_t{rows[blockIdx.x]} * width;
  copy_row(out + int64_t{blockIdx.x} * width, from, width, aligned);
}

// A block a row.
__global__ void scale_each_row(float* rows, const float* factors, int64_t width, bool aligned) {
  float* row = rows + int64_t{blockIdx.x} * width;
  const float factor = factors[blockIdx.x];
  for (int64_t i = threadIdx.x * kVector; i < width; i += kThreads * kVector) {
    Floats values = load(row + i, width - i, aligned);
#pragma unroll
    for (int k = 0; k < kVector; ++k) values.values[k] *= factor;
    store(row + i, values, width - i, aligned);
  }
}

// Puts rows in their places; `adding` adds them to the rows there.
template <bool adding>
__global__ void scatter_rows(float* out, const float* in, const int32_t* rows, int64_t width,
                             bool aligned) {
  float* to = out + int64_t{rows[blockIdx.x]} * width;
  const float* from = in + int64_t{blockIdx.x} * width;
  if constexpr (adding) {
    add_row(to, from, width, aligned);
  } else {
    copy_row(to, from, width, aligned);
  }
}

template <bool adding>
void launch_scatter(const Context& with, Rows out, ConstRows in, std::span<const int32_t> rows) {
  if (in.count == 0) return;
  const bool aligned = rows_aligned(out.data, out.width) && is_aligned(in.data);
  scatter_rows<adding><<<static_cast<unsigned>(in.count), kThreads, 0, with.stream>>>(
      out.data, in.data, rows.data(), out.width, aligned);
  check_launch(adding ? "scatter_rows, adding" : "scatter_rows");
}

struct Combination {
  float* out;
  const float* in;
  const float* weights;
  int64_t top_k;
  int64_t width;
  bool aligned;  // every row is aligned
};

// A block a row of the output. Each product is rounded before it is added, as in the reference.
__global__ void add_weighted(Combination task) {
  float* out = task.out + int64_t{blockIdx.x} * task.width;
  const int64_t first = int64_t{blockIdx.x} * task.top_k;
  for (int64_t i = threadIdx.x * kVector; i < task.width; i += kThreads * kVector) {
    Floats sums = load(out + i, task.width - i, task.aligned);
    for (int64_t choice = first; choice < first + task.top_k; ++choice) {
      const float weight = task.weights[choice];
      const Floats in = load(task.in + choice * task.width + i, task.width - i, task.aligned);
#pragma unroll
      for (int k = 0; k < kVector; ++k) {
        sums.values[k] = __fadd_rn(sums.values[k], __fmul_rn(weight, in.values[k]));
      }
    }
    store(out + i, sums, task.width - i, task.aligned);
  }
}

}  // namespace

void CudaProcessor::clip(std::span<float> values, float limit) const {
  launch_change(context(), values, Clip{limit});
}

void CudaProcessor::scale(std::span<float> values, float factor) const {
  launch_change(context(), values, Scale{factor});
}

void CudaProcessor::sigmoid(std::span<float> values) const {
  launch_change(context(), values, Sigmoid{});
}

void CudaProcessor::scale_rows(Rows rows, std::span<const float> factors) const {
  if (rows.count == 0) return;
  scale_each_row<<<static_cast<unsigned>(rows.count), kThreads, 0, context().stream>>>(
      rows.data, factors.data(), rows.width, rows_aligned(rows.data, rows.width));
  check_launch("scale_each_row");
}

void CudaProcessor::add(Rows out, ConstRows in) const {
  const int64_t count = out.count * out.width;
  if (count == 0) return;
  add_each<<<striding_blocks(vectors_in(count)), kThreads, 0, context().stream>>>(
      out.data, in.data, count, is_aligned(out.data) && is_aligned(in.data));
  check_launch("add_each");
}

void CudaProcessor::gather(Rows out, ConstRows in, std::span<const int32_t> rows) const {
  if (out.count == 0) return;
  const bool aligned = rows_aligned(out.data, out.width) && is_aligned(in.data);
  gather_rows<<<static_cast<unsigned>(out.count), kThreads, 0, context().stream>>>(
      out.data, in.data, rows.data(), out.width, aligned);
  check_launch("gather_rows");
}

void CudaProcessor::scatter(Rows out, ConstRows in, std::span<const int32_t> rows) const {
  launch_scatter<false>(context(), out, in, rows);
}

void CudaProcessor::scatter_add(Rows out, ConstRows in, std::span<const int32_t> rows) const {
  launch_scatter<true>(context(), out, in, rows);
}

void CudaProcessor::combine(Rows out, ConstRows results, std::span<const float> weights) const {
  if (out.count == 0) return;
  const bool aligned = rows_aligned(out.data, out.width) && is_aligned(results.data);
  add_weighted<<<static_cast<unsigned>(out.count), kThreads, 0, context().stream>>>(
      {out.data, results.data, weights.data(), results.count / out.count, out.width, aligned});
  check_launch("add_weighted");
}

}  // namespace klotski::cuda
