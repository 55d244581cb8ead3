#include "kernels/cuda/blocks_cuda.h"

#include <array>
#include <vector>

#include "kernels/cuda/block_tiles_cuda.h"
#include "kernels/cuda/context_cuda.h"
#include "kernels/cuda/few_rows_cuda.h"
#include "kernels/cuda/formats_cuda.h"

namespace klotski::cuda {

namespace {

// Up to this number of rows, a warp an output is faster than matrix instructions.
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

template <typename Block>
struct BlockNumbers {
  const BlockMatrix& matrix;
  int64_t row;

  // Beyond the last column the inputs are zeros, the numbers of the row's last block are not.
  __device__ __forceinline__ Floats eight(unsigned column) const {
    Floats numbers = matrix.template eight<Block>(row, column);
#pragma unroll
    for (int i = 0; i < kVector; ++i) {
      if (column + i >= matrix.columns) numbers.values[i] = 0.0f;
    }
    return numbers;
  }
  template <typename Replace>
  __device__ __forceinline__ void correct(unsigned, const Replace&) const {}
};

template <typename Block>
struct BlockWeight : BlockMatrix {
  static constexpr int kRounds = 2;
  static constexpr int kRoundsOfOneRow = 4;

  BlockWeight() = default;
  explicit BlockWeight(const TensorView& weight)
      : BlockMatrix(weight, block_alignment(Block::kBytes)) {}
  __device__ __forceinline__ BlockNumbers<Block> row(int64_t i) const { return {*this, i}; }
};

template <typename Block, typename In>
void warp_rows(const Context& with, std::span<const RowsProduct<In>> products) {
  multiply_few<In>(with, products,
                   [](const TensorView& weight) { return BlockWeight<Block>(weight); });
}

bool fits_tiles(const Context& with, const TensorView& weight) {
  return with.capability >= 80 && weight.columns() % kGroupColumns == 0;
}

int64_t most_few_rows(const Context& with, const TensorView& weight) {
  return fits_tiles(with, weight) ? kMostTileRows : kFewRows;
}

template <typename Block>
void few_rows(const Context& with, std::span<const RowsProduct<__nv_bfloat16>> products) {
  std::vector<RowsProduct<__nv_bfloat16>> by_warps;
  std::vector<RowsProduct<__nv_bfloat16>> by_tiles;
  for (const RowsProduct<__nv_bfloat16>& product : products) {
    const bool tiles = product.rows > kFewestRows && fits_tiles(with, product.weight);
    (tiles ? by_tiles : by_warps).push_back(product);
  }
  if (!by_warps.empty()) warp_rows<Block, __nv_bfloat16>(with, by_warps);
  if (!by_tiles.empty()) multiply_by_tiles<Block>(with, by_tiles);
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
                       .most_free_float_rows = kFewestRows,
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
