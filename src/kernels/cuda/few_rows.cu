#include "kernels/cuda/few_rows_cuda.h"

#include "kernels/cuda/compact_cuda.h"
#include "kernels/cuda/context_cuda.h"
#include "kernels/cuda/vectors_cuda.h"
#include "kernels/cuda/warp_cuda.h"

namespace klotski::cuda {

namespace {

struct FewRows {
  float* out;
  const __nv_bfloat16* in;
  CompactMatrix weight;
  int rows;
  bool aligned;  // each row of in is aligned
};

__device__ __forceinline__ float lower_number(unsigned two) { return __uint_as_float(two << 16); }
__device__ __forceinline__ float upper_number(unsigned two) {
  return __uint_as_float(two & 0xFFFF0000u);
}

// A warp computes an output of all rows: lanes take eight neighbouring products in turn and their
// sums are added pairwise. A listed number is first multiplied as its four bits say, which is taken
// back when its turn comes: an infinite input then gives NaN. Rows beyond the last repeat the last
// one and are not written.
template <int kRows>
__global__ void multiply_compact(FewRows task) {
  const int64_t output = global_thread() / kWarp;
  const unsigned lane = threadIdx.x % kWarp;
  if (output >= task.weight.rows) return;
  const CompactRow weight(task.weight, output);
  const unsigned columns = task.weight.columns;
  const auto row = [&](int r) { return task.in + int64_t{min(r, task.rows - 1)} * columns; };

  float sums[kRows] = {};
#pragma unroll 4
  for (unsigned k = lane * kVector; k < columns; k += kWarp * kVector) {
    const Packed<unsigned> numbers = weight.eight(k);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const Floats in = load(row(r) + k, columns - k, task.aligned);
#pragma unroll
      for (int i = 0; i < kVector / 2; ++i) {
        sums[r] = fmaf(in.values[2 * i], lower_number(numbers.values[i]), sums[r]);
        sums[r] = fmaf(in.values[2 * i + 1], upper_number(numbers.values[i]), sums[r]);
      }
    }
  }
  for (unsigned i = lane; i < weight.listed(); i += kWarp) {
    const unsigned at = weight.listed_at(i);
    if (at >= columns) continue;
    const unsigned two = weight.eight(at / kVector * kVector).values[at % kVector / 2];
    const float taken = at % 2 == 0 ? lower_number(two) : upper_number(two);
    const float number = __uint_as_float(unsigned{weight.listed_number(i)} << 16);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const float in = to_float(row(r)[at]);
      sums[r] = fmaf(in, number, fmaf(in, -taken, sums[r]));
    }
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const float sum = warp_sum(sums[r]);
    if (lane == 0 && r < task.rows) task.out[r * task.weight.rows + output] = sum;
  }
}

template <int kRows>
void launch(const Context& with, const FewRows& task) {
  multiply_compact<kRows>
      <<<blocks_of(task.weight.rows, kThreads / kWarp), kThreads, 0, with.stream>>>(task);
}

}  // namespace

void few_rows(const Context& with, float* out, const __nv_bfloat16* in, int64_t rows,
              const TensorView& weight) {
  const FewRows task = {out, in, CompactMatrix(weight), static_cast<int>(rows),
                        rows_aligned(in, weight.columns())};
  if (rows == 1) {
    launch<1>(with, task);
  } else if (rows == 2) {
    launch<2>(with, task);
  } else {
    launch<kFewRows>(with, task);
  }
  check_launch("multiply_compact");
}

}  // namespace klotski::cuda
