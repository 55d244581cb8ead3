#pragma once

// Products of up to 32 rows with quantised blocks (blocks_cuda.h) by the matrix instructions of
// capability 8.0: the weights are read once, as they are stored, and become bf16 numbers in
// registers.

#include <cuda_bf16.h>

#include <cstdint>
#include <span>

#include "kernels/cuda/attention_mma_cuda.h"
#include "kernels/cuda/blocks_cuda.h"
#include "kernels/cuda/context_cuda.h"
#include "kernels/cuda/few_rows_cuda.h"
#include "kernels/cuda/warp_cuda.h"

namespace klotski::cuda {

inline constexpr int kMostTileRows = 32;
// Columns that a thread multiplies at a time: a group that has one scale, or two.
inline constexpr unsigned kGroupColumns = 32;

struct TileTask {
  float* out = nullptr;               // [rows][weight.rows]
  const __nv_bfloat16* in = nullptr;  // [rows][weight.columns], each row aligned to 16 bytes
  BlockMatrix weight = {};            // columns: a multiple of kGroupColumns
  int rows = 0;
};

// A warp computes 16 outputs of 8 * kTiles rows. Lane 4 g + t multiplies outputs g and g + 8, and
// of four neighbouring groups of columns the one with number t; so do the lanes' parts of an
// instruction's matrices, whose columns may come in any order that both have. kSplit warps share
// the columns out and add up their sums. Outputs and rows beyond the last repeat the last one and
// are not written.
template <typename Block, int kTiles>
__global__ void __launch_bounds__(kThreads)
    multiply_tiles(const __grid_constant__ LaunchedTasks<TileTask> launched) {
#if __CUDA_ARCH__ >= 800
  const TileTask task = launched.tasks[blockIdx.y];  // copied: read from registers in the loop
  constexpr unsigned kWarps = kThreads / kWarp;
  constexpr unsigned kSplit = kTiles <= 2 ? kWarps : 2 * kWarps / kTiles;
  constexpr unsigned kOutputs = 16;
  constexpr unsigned kLanesOfRow = 4;
  const unsigned warp = threadIdx.x / kWarp;
  const unsigned lane = threadIdx.x % kWarp;
  const unsigned g = lane / kLanesOfRow;
  const unsigned t = lane % kLanesOfRow;
  const unsigned part = warp % kSplit;
  const BlockMatrix& weight = task.weight;
  if (int64_t{blockIdx.x} * (kWarps / kSplit) * kOutputs >= weight.rows) return;  // all warps
  const int64_t first = (int64_t{blockIdx.x} * (kWarps / kSplit) + warp / kSplit) * kOutputs;
  const int64_t outputs[2] = {min(first + g, weight.rows - 1), min(first + g + 8, weight.rows - 1)};
  const unsigned groups = weight.columns / kGroupColumns;

  float sums[kTiles][4] = {};
  for (unsigned begin = part * kLanesOfRow; begin < groups; begin += kSplit * kLanesOfRow) {
    const bool inside = begin + t < groups;
    const unsigned column = min(begin + t, groups - 1) * kGroupColumns;
#pragma unroll
    for (unsigned eight = 0; eight < kGroupColumns; eight += kVector) {
      uint32_t a[2][4];  // matrices of two instructions, each of four columns of both outputs
#pragma unroll
      for (int of = 0; of < 2; ++of) {
        const Floats numbers = weight.template eight<Block>(outputs[of], column, eight);
#pragma unroll
        for (int pair = 0; pair < 4; ++pair) {
          const uint32_t two =
              prefill::pack(numbers.values[2 * pair], numbers.values[2 * pair + 1]);
          a[pair / 2][pair % 2 * 2 + of] = inside ? two : 0;
        }
      }
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        const int row = min(tile * 8 + static_cast<int>(g), task.rows - 1);
        const uint4 in = *reinterpret_cast<const uint4*>(task.in + int64_t{row} * weight.columns +
                                                         column + eight);
        prefill::multiply(sums[tile], a[0], inside ? in.x : 0, inside ? in.y : 0);
        prefill::multiply(sums[tile], a[1], inside ? in.z : 0, inside ? in.w : 0);
      }
    }
  }

  __shared__ float others[kWarps][kTiles][4][kWarp];
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
    for (int i = 0; i < 4; ++i) others[warp][tile][i][lane] = sums[tile][i];
  }
  __syncthreads();
  if (part != 0) return;
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float sum = sums[tile][i];
      for (unsigned other = 1; other < kSplit; ++other) sum += others[warp + other][tile][i][lane];
      const int row = tile * 8 + static_cast<int>(2 * t) + i % 2;
      const int64_t output = first + g + i / 2 * 8;
      if (row < task.rows && output < weight.rows) task.out[row * weight.rows + output] = sum;
    }
  }
#endif
}

// Products of 1 to kMostTileRows rows.
template <typename Block>
void multiply_by_tiles(const Context& with, std::span<const RowsProduct<__nv_bfloat16>> products) {
  const auto task = [](const RowsProduct<__nv_bfloat16>& product) {
    if (!is_aligned(product.in)) {
      fail(ErrorKind::internal, "rows that are not aligned reached a product");
    }
    return TileTask{product.out, product.in,
                    BlockMatrix(product.weight, block_alignment(Block::kBytes)),
                    static_cast<int>(product.rows)};
  };
  launch_by_rows<8, 16, kMostTileRows>(
      products, task, [&](auto bound, const auto& tasks, int count, int64_t outputs) {
        constexpr int kTiles = bound.value / 8;
        constexpr int64_t kOutputsOfBlock = kTiles <= 2 ? 16 : 8 * kTiles;
        const dim3 grid(blocks_of(outputs, kOutputsOfBlock), static_cast<unsigned>(count));
        multiply_tiles<Block, kTiles><<<grid, kThreads, 0, with.stream>>>(tasks);
        check_launch("multiply_tiles");
      });
}

}  // namespace klotski::cuda
