#include "kernels/cuda/blocks_cuda.h"

#include <array>

#include "kernels/cuda/block_tiles_cuda.h"
#include "kernels/cuda/context_cuda.h"
#include "kernels/cuda/formats_cuda.h"
#include "kernels/cuda/warp_cuda.h"

namespace klotski::cuda {

namespace {

// Up to this number of rows, multiplying by blocks where they lie is faster than expanding them
// also without matrix instructions, and up to kFewestRows than with these.
constexpr int64_t kFewRows = 4;
constexpr int64_t kFewestRows = 2;

// A thread expands eight columns.
template <typename Block, typename Out>
__global__ void expand_blocks(Out* out, BlockMatrix in, int64_t eights, bool aligned) {
  const int64_t in_row = eights / in.rows;
  for (int64_t i = global_thread(); i < eights; i += all_threads()) {
    const int64_t row = i / in_row;
    const auto column = static_cast<unsigned>(i % in_row) * kVector;
    store(out + row * in.columns + column, in.template eight<Block>(row, column),
          in.columns - column, aligned);
  }
}

template <typename Block, typename Out>
void expand(const Context& with, Out* out, const TensorView& weight) {
  if (weight.rows() == 0 || weight.columns() == 0) return;
  const BlockMatrix in(weight, block_alignment(Block::kBytes));
  const int64_t eights = in.rows * ((weight.columns() + kVector - 1) / kVector);
  expand_blocks<Block><<<striding_blocks(eights), kThreads, 0, with.stream>>>(
      out, in, eights, rows_aligned(out, weight.columns()));
  check_launch("expand_blocks");
}

template <typename In>
struct FewRows {
  float* out;
  const In* in;
  BlockMatrix weight;
  int rows;
  bool aligned;  // each row of in is aligned
};

// A warp computes an output of all rows: lanes take eight neighbouring products in turn and their
// sums are added pairwise. Rows beyond the last repeat the last one and are not written.
template <typename Block, int kRows, typename In>
__global__ void multiply_blocks(FewRows<In> task) {
  const int64_t output = global_thread() / kWarp;
  const unsigned lane = threadIdx.x % kWarp;
  if (output >= task.weight.rows) return;
  const unsigned columns = task.weight.columns;
  float sums[kRows] = {};
#pragma unroll 2
  for (unsigned k = lane * kVector; k < columns; k += kWarp * kVector) {
    const Floats numbers = task.weight.template eight<Block>(output, k);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const In* row = task.in + int64_t{min(r, task.rows - 1)} * columns;
      const Floats in = load(row + k, columns - k, task.aligned);
#pragma unroll
      for (int i = 0; i < kVector; ++i) {
        // Beyond the last column the inputs are zeros, the numbers those of the row's last block.
        const float number = k + i < columns ? numbers.values[i] : 0.0f;
        sums[r] = fmaf(in.values[i], number, sums[r]);
      }
    }
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const float sum = warp_sum(sums[r]);
    if (lane == 0 && r < task.rows) task.out[r * task.weight.rows + output] = sum;
  }
}

template <typename Block, int kRows, typename In>
void launch(const Context& with, const FewRows<In>& task) {
  multiply_blocks<Block, kRows>
      <<<blocks_of(task.weight.rows, kThreads / kWarp), kThreads, 0, with.stream>>>(task);
}

template <typename Block, typename In>
void warp_rows(const Context& with, float* out, const In* in, int64_t rows,
               const TensorView& weight) {
  const FewRows<In> task = {out, in, BlockMatrix(weight, block_alignment(Block::kBytes)),
                            static_cast<int>(rows), rows_aligned(in, weight.columns())};
  if (rows == 1) {
    launch<Block, 1>(with, task);
  } else if (rows == 2) {
    launch<Block, 2>(with, task);
  } else {
    launch<Block, kFewRows>(with, task);
  }
  check_launch("multiply_blocks");
}

bool fits_tiles(const Context& with, const TensorView& weight) {
  return with.capability >= 80 && weight.columns() % kGroupColumns == 0;
}

int64_t most_few_rows(const Context& with, const TensorView& weight) {
  return fits_tiles(with, weight) ? kMostTileRows : kFewRows;
}

template <typename Block>
void few_rows(const Context& with, float* out, const __nv_bfloat16* in, int64_t rows,
              const TensorView& weight) {
  if (rows <= kFewestRows || !fits_tiles(with, weight)) {
    return warp_rows<Block>(with, out, in, rows, weight);
  }
  if (weight.rows() == 0) return;
  if (!is_aligned(in)) fail(ErrorKind::internal, "rows that are not aligned reached a product");
  multiply_by_tiles<Block>(
      with, {out, in, BlockMatrix(weight, block_alignment(Block::kBytes)), static_cast<int>(rows)});
}

// A block of threads a token.
template <typename Block>
__global__ void look_up_blocks(float* out, BlockMatrix table, const TokenId* tokens, bool aligned) {
  float* to = out + int64_t{blockIdx.x} * table.columns;
  const int64_t row = tokens[blockIdx.x];
  for (unsigned k = threadIdx.x * kVector; k < table.columns; k += kThreads * kVector) {
    store(to + k, table.template eight<Block>(row, k), table.columns - k, aligned);
  }
}

template <typename Block>
void look_up(const Context& with, Rows out, const TensorView& table,
             std::span<const TokenId> tokens) {
  const BlockMatrix blocks(table, block_alignment(Block::kBytes));
  look_up_blocks<Block><<<static_cast<unsigned>(out.count), kThreads, 0, with.stream>>>(
      out.data, blocks, tokens.data(), rows_aligned(out.data, out.width));
  check_launch("look_up_blocks");
}

template <typename... Blocks>
constexpr std::array<FormatKernel, sizeof...(Blocks)> kernels_of() {
  return {FormatKernel{.expand = expand<Blocks, __nv_bfloat16>,
                       .expand_floats = expand<Blocks, float>,
                       .most_few_rows = most_few_rows,
                       .few_rows = few_rows<Blocks>,
                       .most_few_float_rows = kFewRows,
                       .few_float_rows = warp_rows<Blocks, float>,
                       .look_up = look_up<Blocks>}...};
}

}  // namespace

const FormatKernel* block_kernel(DType dtype) {
  // In the order of DType.
  static constexpr auto kKernels =
      kernels_of<Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, Iq4Nl, Iq4Xs, Mxfp4>();
  constexpr int kFirst = static_cast<int>(DType::Q4_0);
  static_assert(kKernels.size() == static_cast<int>(DType::MXFP4) - kFirst + 1);
  const int number = static_cast<int>(dtype) - kFirst;
  if (number < 0 || number >= static_cast<int>(kKernels.size())) return nullptr;
  return &kKernels[static_cast<size_t>(number)];
}

}  // namespace klotski::cuda
