#pragma once

// One block of attention_decode.cu on tensor cores: a split of the positions that one token sees,
// one key-value head, up to 16 of its query heads, which are the rows of the products. A warp takes
// 16 keys of each tile; the sums of the warps are added up at the end.

#include <cuda_bf16.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/attention_cuda.h"
#include "kernels/cuda/attention_mma_cuda.h"
#include "kernels/cuda/attention_split_cuda.h"
#include "kernels/cuda/attention_tiles_cuda.h"

namespace klotski::cuda::decode {

inline constexpr int kMatrixRows = 16;

template <int dim>
struct FewLayout {
  static constexpr int kDim = dim;
  static constexpr int kWarps = decode::kWarps;
  static constexpr int kSets = 1;
  static constexpr int kKeys = 16 * kWarps;
  static constexpr int kStages = 2;
  static constexpr int kFirstTiles = 2;  // all of a split of kChunk positions
  static constexpr int kBlocks = 3;
  static constexpr bool kHeldQueries = true;
};

template <typename Layout>
struct FewShared {
  prefill::PrefillShared<Layout> tiles;
  Statistics statistics[Layout::kWarps][kMatrixRows];
  Split split;
};

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800

// A thread holds rows lane / 4 and that + 8 (halves 0 and 1), and of each eight columns
// 2 * (lane % 4) and the next.
template <typename Layout>
class FewBlock {
 public:
  using Shared = FewShared<Layout>;
  using Tile = typename prefill::PrefillShared<Layout>::Tile;

  __device__ FewBlock(const AttentionShape& shape, const DecodeLists& lists, Shared& shared)
      : shape_(shape), shared_(shared), copies_(lists.pages, shared.tiles) {
    const int parts = (shape.group() + kMatrixRows - 1) / kMatrixRows;
    const int64_t blocks = int64_t{shape.kv_heads} * parts;
    split_index_ = blockIdx.x / blocks;
    const int part = static_cast<int>(blockIdx.x % blocks);
    const int kv_head = part / parts;
    first_head_ = kv_head * shape.group() + part % parts * kMatrixRows;
    heads_ = min(kMatrixRows, (kv_head + 1) * shape.group() - first_head_);
    if (threadIdx.x == 0) describe(lists, kv_head);
    __syncthreads();
  }

  __device__ void run(const Partials& partials) {
    copies_.begin();
    load_queries();
    copies_.for_each_tile([this](const Tile& tile, int begin) { attend(tile, begin); });
    write(partials);
  }

 private:
  static constexpr int kDim = Layout::kDim;

  __device__ static int lane() { return static_cast<int>(threadIdx.x) % 32; }
  __device__ static int warp() { return static_cast<int>(threadIdx.x) / 32; }

  __device__ void describe(const DecodeLists& lists, int kv_head) {
    constexpr int64_t kElementBytes = sizeof(__nv_bfloat16);
    const Split split = lists.splits[split_index_];
    shared_.split = split;
    auto& tiles = shared_.tiles;
    tiles.sequence = lists.sequences[split.sequence];
    tiles.page_bits = __ffs(shape_.page_tokens) - 1;
    tiles.token_bytes = shape_.kv_width() * kElementBytes;
    tiles.head_offset = int64_t{kv_head} * kDim * kElementBytes;
    tiles.seen = {split.begin, split.begin, split.begin, split.end};
    tiles.range = prefill::TileRange(tiles.seen, Layout::kKeys);
  }

  // Rows without a head are zeros.
  __device__ void load_queries() {
    const float* token =
        shared_.tiles.sequence.queries + shared_.split.token * shape_.query_width();
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int head = lane() / 4 + 8 * half;
      const float* query = token + int64_t{first_head_ + head} * kDim + 2 * (lane() % 4);
#pragma unroll
      for (int k = 0; k < kDim / 8; ++k) {
        queries_[k / 2][k % 2 * 2 + half] =
            head < heads_ ? prefill::pack(query[k * 8], query[k * 8 + 1]) : 0;
      }
    }
  }

  __device__ void attend(const Tile& tile, int begin) {
    const int first = 16 * warp();
    if (begin + first >= shared_.split.end) return;
    float scores[2][4] = {};
    // Matrices: 8 keys by 8 elements, the next 8 elements, and both for the next 8 keys.
    const auto* keys_at = &tile.keys[first + lane() / 16 * 8 + lane() % 8][lane() / 8 % 2 * 8];
#pragma unroll
    for (int k = 0; k < kDim / 16; ++k) {
      uint32_t keys[4];
      prefill::load_matrices(keys, keys_at + k * 16);
      prefill::multiply_two(scores, queries_[k], keys);
    }
    take_shares(scores, begin + first);
    uint32_t packed[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      packed[i] = prefill::pack(scores[i / 2][i % 2 * 2], scores[i / 2][i % 2 * 2 + 1]);
    }
    // Matrices: 8 keys by 8 elements, the next 8 keys, and both for the next 8 elements.
    const auto* values_at = &tile.values[first + lane() % 16][lane() / 16 * 8];
#pragma unroll
    for (int d = 0; d < kDim / 16; ++d) {
      uint32_t values[4];
      prefill::load_matrices_transposed(values, values_at + d * 16);
      prefill::multiply_two(&weighted_[2 * d], packed, values);
    }
  }

  // Scores of 16 keys become shares, and all sums are brought to that measure.
  __device__ void take_shares(float (&scores)[2][4], int begin) {
    const float scale = shared_.tiles.sequence.scale * kLog2E;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float largest = largest_[half];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int position = begin + i / 2 * 8 + 2 * (lane() % 4) + i % 2;
        float& score = scores[i / 2][2 * half + i % 2];
        score = shared_.tiles.seen.has(position) ? score * scale : -INFINITY;
        largest = fmaxf(largest, score);
      }
      largest = prefill::row_max(largest);
      const float base = largest == -INFINITY ? 0.0f : largest;  // nothing seen yet
      const float factor = power_of_two(largest_[half] - base);
      largest_[half] = largest;
      sum_[half] *= factor;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float& score = scores[i / 2][2 * half + i % 2];
        score = power_of_two(score - base);
        sum_[half] += score;  // this thread's columns only
      }
#pragma unroll
      for (int d = 0; d < kDim / 8; ++d) {
        weighted_[d][2 * half] *= factor;
        weighted_[d][2 * half + 1] *= factor;
      }
    }
  }

  // Brings the warps' sums to one measure and adds them up in the order of warps.
  __device__ void write(const Partials& partials) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float sum = prefill::row_sum(sum_[half]);
      if (lane() % 4 == 0) {
        shared_.statistics[warp()][lane() / 4 + 8 * half] = {largest_[half], sum};
      }
    }
    __syncthreads();  // nobody reads the tiles after this
    using Sums = float[kMatrixRows][kDim];
    static_assert(sizeof(Sums) * Layout::kWarps <= sizeof(shared_.tiles.tiles));
    Sums* sums = reinterpret_cast<Sums*>(shared_.tiles.tiles);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = lane() / 4 + 8 * half;
      if (row >= heads_) continue;
      const float factor = power_of_two(largest_[half] - largest_of(row));
#pragma unroll
      for (int d = 0; d < kDim / 8; ++d) {
        *reinterpret_cast<float2*>(&sums[warp()][row][d * 8 + 2 * (lane() % 4)]) =
            make_float2(weighted_[d][2 * half] * factor, weighted_[d][2 * half + 1] * factor);
      }
    }
    __syncthreads();
    const int64_t first = split_index_ * shape_.query_heads + first_head_;
    for (int i = static_cast<int>(threadIdx.x); i < heads_ * kDim; i += kThreads) {
      float sum = 0.0f;
#pragma unroll
      for (int w = 0; w < Layout::kWarps; ++w) sum += sums[w][i / kDim][i % kDim];
      partials.weighted[first * kDim + i] = sum;
    }
    const int row = static_cast<int>(threadIdx.x);
    if (row < heads_) partials.statistics[first + row] = {largest_of(row), sum_of(row)};
  }

  __device__ float largest_of(int row) const {
    float largest = shared_.statistics[0][row].largest;
#pragma unroll
    for (int w = 1; w < Layout::kWarps; ++w) {
      largest = fmaxf(largest, shared_.statistics[w][row].largest);
    }
    return largest;
  }
  __device__ float sum_of(int row) const {
    const float largest = largest_of(row);
    float sum = 0.0f;
#pragma unroll
    for (int w = 0; w < Layout::kWarps; ++w) {
      const Statistics& its = shared_.statistics[w][row];
      sum += its.sum * power_of_two(its.largest - largest);
    }
    return sum;
  }

  const AttentionShape& shape_;
  Shared& shared_;
  prefill::TileCopies<Layout> copies_;
  int64_t split_index_;
  int first_head_;
  int heads_;
  uint32_t queries_[kDim / 16][4];
  float weighted_[kDim / 8][4] = {};
  float largest_[2] = {-INFINITY, -INFINITY};
  float sum_[2] = {0.0f, 0.0f};
};

#endif

}  // namespace klotski::cuda::decode
