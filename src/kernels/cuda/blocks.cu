#include "kernels/cuda/blocks_cuda.h"

#include <array>
#include <vector>

#include "kernels/cuda/block_tiles_cuda.h"
#include "kernels/cuda/context_cuda.h"
#include "kernels/cuda/few_rows_cuda.h"
#include "kernels/cuda/formats_cuda.h"
#include "kernels/cuda/packed_matrix_cuda.h"

namespace klotski::cuda {

namespace {

// Up to this number of rows, a warp an output is faster than matrix instructions.
constexpr int64_t kWarpRows = 2;

template <typename Block>
struct MatrixOf : BlockMatrix {
  MatrixOf() = default;
  explicit MatrixOf(const TensorView& weight)
      : BlockMatrix(weight, block_alignment(Block::kBytes)) {}
  __device__ __forceinline__ Floats eight(int64_t row, unsigned column) const {
    return BlockMatrix::eight<Block>(row, column);
  }
};

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
    const bool tiles = product.rows > kWarpRows && fits_tiles(with, product.weight);
    (tiles ? by_tiles : by_warps).push_back(product);
  }
  if (!by_warps.empty()) warp_rows<MatrixOf<Block>, __nv_bfloat16>(with, by_warps);
  if (!by_tiles.empty()) multiply_by_tiles<Block>(with, by_tiles);
}

template <typename Block>
constexpr FormatKernel kernel_of() {
  FormatKernel kernel = packed_kernel<MatrixOf<Block>>();
  kernel.most_few_rows = most_few_rows;
  kernel.few_rows = few_rows<Block>;
  return kernel;
}

template <typename... Blocks>
constexpr std::array<FormatKernel, sizeof...(Blocks)> kernels_of() {
  return {kernel_of<Blocks>()...};
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
