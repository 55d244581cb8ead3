#include "kernels/cuda/few_outputs_cuda.h"

#include "kernels/cuda/context_cuda.h"
#include "kernels/cuda/vectors_cuda.h"
#include "kernels/cuda/warp_cuda.h"

namespace klotski::cuda {

namespace {

template <typename Stored>
struct FewOutputs {
  float* out;
  const float* in;
  const Stored* weight;
  int64_t rows;
  int64_t outputs;
  int64_t width;
  bool aligned;  // each row of in and weight is aligned
};

// A warp computes kOutputs outputs of kRows rows. Lanes take eight neighbouring products in turn
// and their sums are added pairwise, so that the order does not depend on kRows and kOutputs. Rows
// and outputs beyond the end repeat the last one and are not written. A small tile reads several
// rounds at a time: there is little else to do meanwhile.
template <typename Stored, int kRows, int kOutputs, bool kAligned>
__global__ void multiply_few(FewOutputs<Stored> task) {
  constexpr int kRounds = kRows * kOutputs == 1 ? 8 : 1;
  const int64_t warp = global_thread() / kWarp;
  const unsigned lane = threadIdx.x % kWarp;
  const int64_t output_tiles = (task.outputs + kOutputs - 1) / kOutputs;
  const int64_t first_row = warp / output_tiles * kRows;
  const int64_t first_output = warp % output_tiles * kOutputs;
  if (first_row >= task.rows) return;

  float sums[kRows][kOutputs] = {};
#pragma unroll kRounds
  for (int64_t k = lane * kVector; k < task.width; k += kWarp * kVector) {
    const int64_t left = kAligned ? kVector : task.width - k;
    Floats weights[kOutputs];
#pragma unroll
    for (int o = 0; o < kOutputs; ++o) {
      const int64_t output = min(first_output + o, task.outputs - 1);
      weights[o] = load(task.weight + output * task.width + k, left, kAligned);
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const int64_t row = min(first_row + r, task.rows - 1);
      const Floats in = load(task.in + row * task.width + k, left, kAligned);
#pragma unroll
      for (int o = 0; o < kOutputs; ++o) {
#pragma unroll
        for (int i = 0; i < kVector; ++i) {
          sums[r][o] = fmaf(in.values[i], weights[o].values[i], sums[r][o]);
        }
      }
    }
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
#pragma unroll
    for (int o = 0; o < kOutputs; ++o) {
      const float sum = warp_sum(sums[r][o]);
      const int64_t row = first_row + r;
      const int64_t output = first_output + o;
      if (lane == 0 && row < task.rows && output < task.outputs) {
        task.out[row * task.outputs + output] = sum;
      }
    }
  }
}

template <typename Stored, int kRows, int kOutputs>
void launch(const Context& with, const FewOutputs<Stored>& task) {
  const int64_t warps =
      ((task.rows + kRows - 1) / kRows) * ((task.outputs + kOutputs - 1) / kOutputs);
  const auto kernel = task.aligned ? multiply_few<Stored, kRows, kOutputs, true>
                                   : multiply_few<Stored, kRows, kOutputs, false>;
  kernel<<<blocks_of(warps, kThreads / kWarp), kThreads, 0, with.stream>>>(task);
  check_launch("multiply_few");
}

}  // namespace

void few_outputs(const Context& with, Rows out, ConstRows in, const TensorView& weight) {
  constexpr int kRows = 8;
  constexpr int kOutputs = 4;
  // Large tiles read less, where there are enough of them for the whole device.
  const int64_t tiles = out.count * out.width / (kRows * kOutputs);
  const bool large_tiles = tiles >= int64_t{2} * with.multiprocessors;
  with_stored_type(weight.dtype, [&](auto type) {
    using Stored = decltype(type);
    const FewOutputs<Stored> task = {
        out.data,
        in.data,
        reinterpret_cast<const Stored*>(weight.data),
        out.count,
        out.width,
        in.width,
        rows_aligned(in.data, in.width) && rows_aligned(weight.data, in.width)};
    if (large_tiles) {
      launch<Stored, kRows, kOutputs>(with, task);
    } else {
      launch<Stored, 1, 1>(with, task);
    }
  });
}

}  // namespace klotski::cuda
