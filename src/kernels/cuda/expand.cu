#include "kernels/cuda/expand_cuda.h"

#include "kernels/cuda/compact_cuda.h"
#include "kernels/cuda/context_cuda.h"
#include "kernels/cuda/vectors_cuda.h"
#include "kernels/cuda/warp_cuda.h"

namespace klotski::cuda {

namespace {

struct Expansion {
  uint16_t* out;
  CompactMatrix in;
  bool aligned;  // every row of out is aligned
};

// kRowThreads threads a row, kThreads a block.
template <unsigned kRowThreads>
__global__ void expand_rows(Expansion task) {
  const int64_t row = int64_t{blockIdx.x} * (kThreads / kRowThreads) + threadIdx.x / kRowThreads;
  const unsigned thread = threadIdx.x % kRowThreads;
  if (row >= task.in.rows) return;  // whole warps, and only where a row is no more than one
  const CompactRow in(task.in, row);
  const unsigned columns = task.in.columns;
  uint16_t* out = task.out + row * columns;

  for (unsigned i = thread * kVector; i < columns; i += kRowThreads * kVector) {
    const Packed<unsigned> numbers = in.eight(i);
    if (task.aligned) {
      *reinterpret_cast<Packed<unsigned>*>(out + i) = numbers;
      continue;
    }
#pragma unroll
    for (unsigned k = 0; k < kVector; ++k) {
      if (i + k < columns) {
        out[i + k] = static_cast<uint16_t>(numbers.values[k / 2] >> 16 * (k % 2));
      }
    }
  }
  if constexpr (kRowThreads > kWarp) {
    __syncthreads();
  } else {
    __syncwarp();
  }
  // Listed numbers are few and written one after the other: where a column is listed twice, the
  // last number counts.
  if (thread != 0) return;
  for (unsigned i = 0; i < in.listed(); ++i) {
    const unsigned at = in.listed_at(i);
    if (at < columns) out[at] = in.listed_number(i);
  }
}

template <unsigned kRowThreads>
void launch(const Context& with, const Expansion& task) {
  expand_rows<kRowThreads>
      <<<blocks_of(task.in.rows, kThreads / kRowThreads), kThreads, 0, with.stream>>>(task);
}

}  // namespace

void expand(const Context& with, __nv_bfloat16* out, const TensorView& weight) {
  constexpr int64_t kWarpColumns = 1024;  // columns that a warp writes in four rounds
  if (weight.rows() == 0 || weight.columns() == 0) return;
  const Expansion task = {reinterpret_cast<uint16_t*>(out), CompactMatrix(weight),
                          rows_aligned(out, weight.columns())};
  weight.columns() <= kWarpColumns ? launch<kWarp>(with, task) : launch<kThreads>(with, task);
  check_launch("expand_rows");
}

}  // namespace klotski::cuda
