// Attention of many queries with bf16 keys and values on tensor cores: products of 16 x 16 by 16 x
// 8 numbers in bf16, sums and the online softmax in float32. The query heads that share a key-value
// head are neighbouring rows (row = token * group + head of the group), so that short sequences
// fill the rows too. A warp has 16 or 32 rows; keys and values come in tiles at multiples of the
// tile's size, so that a row's result does not depend on the rows computed with it.

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/cuda/attention_cuda.h"
#include "kernels/cuda/attention_rows_cuda.h"

namespace klotski::cuda {

namespace prefill {

template <int dim>
struct UsualLayout {
  static constexpr int kDim = dim;
  static constexpr int kWarps = 4;
  // Two sets use each key and value twice that comes from shared memory, whose speed is the limit;
  // the sums of wide heads leave registers for one, and for the scores of few keys.
  static constexpr int kSets = dim > 128 ? 1 : 2;
  static constexpr int kKeys = dim > 128 ? 32 : 64;
  static constexpr int kStages = 2;
  static constexpr int kFirstTiles = 1;
  static constexpr int kBlocks = 2;
  static constexpr bool kHeldQueries = false;
};

// Layout for devices with less shared memory: 64 rows a block, queries in registers where these
// suffice.
template <int dim>
struct CompactLayout : UsualLayout<dim> {
  static constexpr int kSets = 1;
  static constexpr int kKeys = dim > 128 ? 16 : 64;
  static constexpr int kBlocks = dim > 128 ? 2 : 3;
  static constexpr bool kHeldQueries = dim <= 128;
};

}  // namespace prefill

namespace {

using namespace prefill;

template <typename Layout>
__global__ void __launch_bounds__(Layout::kWarps * 32, Layout::kBlocks)
    prefill_kernel(const AttentionShape shape, const PrefillLists lists) {
#if __CUDA_ARCH__ >= 800
  extern __shared__ __align__(16) std::byte shared[];
  PrefillBlock<Layout>(shape, lists, *reinterpret_cast<PrefillShared<Layout>*>(shared)).run();
#else
  __trap();  // prefill_takes has said no
#endif
}

// Blocks of rows, the blocks that see the most positions first: short ones fill the multiprocessors
// that are free at the end.
std::vector<PrefillWork> work_list(const AttentionBatch& batch, int block_rows) {
  struct Sized {
    int seen;
    PrefillWork work;
  };
  std::vector<Sized> sized;
  const int group = batch.shape.group();
  for (size_t s = 0; s < batch.sequences.size(); ++s) {
    const AttentionSequence& sequence = batch.sequences[s];
    const int rows = sequence.tokens * group;
    for (int row = 0; row < rows; row += block_rows) {
      const int first = sequence.first_position + row / group;
      const int last = sequence.first_position + std::min(row + block_rows - 1, rows - 1) / group;
      const SeenRanges seen = seen_ranges(sequence, first, last);
      const int count = seen.prefix_end - seen.prefix_begin + seen.end - seen.begin;
      sized.push_back({count, {static_cast<int>(s), row}});
    }
  }
  std::stable_sort(sized.begin(), sized.end(),
                   [](const Sized& a, const Sized& b) { return a.seen > b.seen; });
  std::vector<PrefillWork> work;
  for (const Sized& one : sized) work.push_back(one.work);
  return work;
}

template <typename Layout>
void launch(const Context& with, const AttentionBatch& batch) {
  using Shared = PrefillShared<Layout>;
  const std::vector<PrefillWork> work = work_list(batch, Shared::kRows);
  const UploadedBatch<PrefillWork> uploaded(with, batch, std::span<const PrefillWork>(work));
  const PrefillLists lists = {uploaded.sequences(), uploaded.pages(), uploaded.work()};
  constexpr int kSharedBytes = sizeof(Shared);
  const auto kernel = prefill_kernel<Layout>;
  check_cuda(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes),
      "cudaFuncSetAttribute");
  const auto blocks =
      static_cast<unsigned>(work.size() * static_cast<size_t>(batch.shape.kv_heads));
  kernel<<<blocks, Layout::kWarps * 32, kSharedBytes, with.stream>>>(batch.shape, lists);
  check_launch("attention of many tokens");
}

template <int dim>
void launch_where_it_fits(const Context& with, const AttentionBatch& batch) {
  int device = 0;
  int most_bytes = 0;
  check_cuda(cudaGetDevice(&device), "cudaGetDevice");
  check_cuda(cudaDeviceGetAttribute(&most_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
             "cudaDeviceGetAttribute");
  const bool fits = static_cast<size_t>(most_bytes) >= sizeof(PrefillShared<UsualLayout<dim>>);
  return fits ? launch<UsualLayout<dim>>(with, batch) : launch<CompactLayout<dim>>(with, batch);
}

}  // namespace

bool prefill_takes(const Context& with, const AttentionShape& shape) {
  constexpr int kDims[] = {64, 80, 96, 128, 256};
  return with.capability >= 80 && !shape.values_in_keys && shape.bf16_cache &&
         shape.rounded_queries &&
         std::find(std::begin(kDims), std::end(kDims), shape.head_dim) != std::end(kDims) &&
         std::has_single_bit(static_cast<unsigned>(shape.page_tokens));
}

void prefill_attention(const Context& with, const AttentionBatch& batch) {
  switch (batch.shape.head_dim) {
    case 64:
      return launch<UsualLayout<64>>(with, batch);
    case 80:
      return launch<UsualLayout<80>>(with, batch);
    case 96:
      return launch<UsualLayout<96>>(with, batch);
    case 128:
      return launch_where_it_fits<128>(with, batch);
    case 256:
      return launch_where_it_fits<256>(with, batch);
    default:
      fail(ErrorKind::internal, "attention on tensor cores was asked for heads of {} elements",
           batch.shape.head_dim);
  }
}

}  // namespace klotski::cuda
