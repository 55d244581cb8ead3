#pragma once

// One block of attention_prefill.cu: rows of one key-value head.

#include <cuda_bf16.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/attention_cuda.h"
#include "kernels/cuda/attention_mma_cuda.h"
#include "kernels/cuda/attention_tiles_cuda.h"

namespace klotski::cuda::prefill {

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800

// A block of queries. A warp has kSets sets of 16 rows; a thread holds rows lane / 4 and lane / 4 +
// 8 of each set (halves 0 and 1), and columns 2 * (lane % 4) and the next of each eight.
template <typename Layout>
class PrefillBlock {
 public:
  using Shared = PrefillShared<Layout>;
  using Tile = typename Shared::Tile;

  __device__ PrefillBlock(const AttentionShape& shape, const PrefillLists& lists, Shared& shared)
      : shape_(shape), shared_(shared), copies_(lists.pages, shared) {
    if (threadIdx.x == 0) describe(lists);
    __syncthreads();
    first_own_ = own(first_row());
    last_own_ = first_row() < shared.rows ? own(first_row() + kWarpRows - 1) : -1;
  }

  __device__ void run() {
    copies_.begin();
    load_queries();
    clear();
    copies_.for_each_tile([this](const Tile& tile, int begin) {
      if (begin <= last_own_) attend(tile, begin);
    });
    write();
  }

 private:
  static constexpr int kDim = Layout::kDim;
  static constexpr int kKeys = Layout::kKeys;
  static constexpr int kSets = Layout::kSets;
  static constexpr int kWarpRows = 16 * kSets;
  static constexpr int kDepth = kDim / 16;  // steps of a product with keys
  using Scores = float[kSets][kKeys / 8][4];

  __device__ void describe(const PrefillLists& lists) {
    constexpr int64_t kElementBytes = sizeof(__nv_bfloat16);
    const PrefillWork work = lists.work[blockIdx.x / shape_.kv_heads];
    shared_.sequence = lists.sequences[work.sequence];
    shared_.group = shape_.group();
    shared_.rows = shared_.sequence.tokens * shared_.group;
    shared_.first_row = work.first_row;
    shared_.page_bits = __ffs(shape_.page_tokens) - 1;
    shared_.token_bytes = shape_.kv_width() * kElementBytes;
    shared_.head_offset = int64_t{kv_head()} * kDim * kElementBytes;
    shared_.seen =
        seen_ranges(shared_.sequence, own(work.first_row), own(work.first_row + Shared::kRows - 1));
    shared_.range = TileRange(shared_.seen, kKeys);
  }

  __device__ static int lane() { return static_cast<int>(threadIdx.x) % 32; }
  __device__ static int warps_row() { return static_cast<int>(threadIdx.x) / 32 * kWarpRows; }
  __device__ int kv_head() const { return static_cast<int>(blockIdx.x % shape_.kv_heads); }
  // The first row of the warp, and a row of the thread.
  __device__ int first_row() const { return shared_.first_row + warps_row(); }
  __device__ int row(int set, int half) const {
    return first_row() + 16 * set + 8 * half + lane() / 4;
  }
  // Rows behind the last one are computed like the last one and written nowhere.
  __device__ int token(int row) const { return min(row, shared_.rows - 1) / shared_.group; }
  __device__ int own(int row) const { return shared_.sequence.first_position + token(row); }
  __device__ int head(int row) const {
    return (kv_head() - token(row)) * shared_.group + min(row, shared_.rows - 1);
  }
  // Index of a row's first number in queries and output.
  __device__ int64_t offset(int row) const {
    return token(row) * shape_.query_width() + int64_t{head(row)} * kDim;
  }

  // A warp's own rows to shared memory.
  __device__ void load_queries() {
    constexpr int kVectors = kDim / 4;
    const int64_t lanes_offset = offset(first_row() + lane() % kWarpRows);
    const float* queries = shared_.sequence.queries;
#pragma unroll 8
    for (int i = lane(); i < kWarpRows * kVectors; i += 32) {
      const int in_warp = i / kVectors;
      const int column = i % kVectors * 4;
      const float* from = queries + __shfl_sync(0xFFFFFFFFu, lanes_offset, in_warp) + column;
      const float4 four = __ldg(reinterpret_cast<const float4*>(from));
      *reinterpret_cast<uint2*>(&shared_.queries()[warps_row() + in_warp][column]) =
          make_uint2(pack(four.x, four.y), pack(four.z, four.w));
    }
    __syncwarp();
    if constexpr (Layout::kHeldQueries) {
#pragma unroll
      for (int k = 0; k < kDepth; ++k) fetch_queries(queries_[k], k);
    }
  }

  // Matrices: 8 rows by 8 elements, the next 8 rows, and both for the next 8 elements.
  __device__ void fetch_queries(uint32_t (&to)[kSets][4], int k) const {
    const auto* from = &shared_.queries()[warps_row() + lane() % 16][lane() / 16 * 8];
#pragma unroll
    for (int set = 0; set < kSets; ++set) {
      load_matrices(to[set], from + set * 16 * (kDim + 8) + k * 16);
    }
  }

  __device__ void clear() {
#pragma unroll
    for (int set = 0; set < kSets; ++set) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        largest_[set][half] = -INFINITY;
        sum_[set][half] = 0.0f;
      }
#pragma unroll
      for (int d = 0; d < kDim / 8; ++d) {
#pragma unroll
        for (int i = 0; i < 4; ++i) output_[set][d][i] = 0.0f;
      }
    }
  }

  __device__ void attend(const Tile& tile, int begin) {
    Scores scores;
    multiply_keys(tile, scores);
    const AttentionSequence& sequence = shared_.sequence;
    if (begin + kKeys - 1 > first_own_) hide_later(scores, begin);
    if (begin < sequence.first_seen(max(last_own_, 0)) ||
        (begin <= last_own_ - sequence.kept_window && begin + kKeys > sequence.kept_prefix)) {
      hide_gone(scores, begin);
    }
    take_shares(scores);
    add_values(tile, scores);
  }

  __device__ void multiply_keys(const Tile& tile, Scores& scores) const {
#pragma unroll
    for (int i = 0; i < kSets * kKeys / 2; ++i)
      scores[i / (kKeys / 2)][i / 4 % (kKeys / 8)][i % 4] = 0.0f;
    // Matrices: 8 keys by 8 elements, the next 8 elements, and both for the next 8 keys.
    const __nv_bfloat16* from = &tile.keys[lane() / 16 * 8 + lane() % 8][lane() / 8 % 2 * 8];
#pragma unroll
    for (int k = 0; k < kDepth; ++k) {
      uint32_t queries[kSets][4];
      if constexpr (!Layout::kHeldQueries) fetch_queries(queries, k);
      const auto& used = Layout::kHeldQueries ? queries_[k % kHeldDepth] : queries;
#pragma unroll
      for (int n = 0; n < kKeys / 16; ++n) {
        uint32_t keys[4];
        load_matrices(keys, from + n * 16 * (kDim + 8) + k * 16);
#pragma unroll
        for (int set = 0; set < kSets; ++set) {
          multiply_two(&scores[set][2 * n], used[set], keys);
        }
      }
    }
  }

  // Hides each score for which hidden(own position of the row, position) is true.
  template <typename Hidden>
  __device__ void hide(Scores& scores, int begin, const Hidden& hidden) const {
#pragma unroll
    for (int set = 0; set < kSets; ++set) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row_own = own(row(set, half));
#pragma unroll
        for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            const int position = begin + n * 8 + 2 * (lane() % 4) + i;
            if (hidden(row_own, position)) scores[set][n][2 * half + i] = -INFINITY;
          }
        }
      }
    }
  }
  __device__ void hide_later(Scores& scores, int begin) const {
    hide(scores, begin, [](int row_own, int position) { return position > row_own; });
  }
  __device__ void hide_gone(Scores& scores, int begin) const {
    const AttentionSequence& sequence = shared_.sequence;
    hide(scores, begin,
         [&](int row_own, int position) { return !sequence.sees(row_own, position); });
  }

  // Scores become shares relative to the largest score so far, and all sums are scaled to it.
  __device__ void take_shares(Scores& scores) {
    const float scale = shared_.sequence.scale * kLog2E;
    float factors[kSets][2];
    bool raised = false;
#pragma unroll
    for (int set = 0; set < kSets; ++set) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float before = largest_[set][half];
        float largest = before;
#pragma unroll
        for (int n = 0; n < kKeys / 8; ++n) {
          largest = fmaxf(largest, fmaxf(scores[set][n][2 * half], scores[set][n][2 * half + 1]));
        }
        largest = row_max(largest);
        const float factor = before == largest ? 1.0f : power_of_two((before - largest) * scale);
        const float base = largest == -INFINITY ? 0.0f : largest * scale;  // nothing seen yet
        float sum = 0.0f;
#pragma unroll
        for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
          for (int i = 2 * half; i < 2 * half + 2; ++i) {
            scores[set][n][i] = power_of_two(fmaf(scores[set][n][i], scale, -base));
            sum += scores[set][n][i];
          }
        }
        largest_[set][half] = largest;
        sum_[set][half] = sum_[set][half] * factor + sum;  // this thread's columns only
        factors[set][half] = factor;
        raised = raised || before != largest;
      }
    }
    if (__any_sync(0xFFFFFFFFu, raised)) lower_output(factors);  // seldom after the first tiles
  }

  __device__ void lower_output(const float (&factors)[kSets][2]) {
#pragma unroll
    for (int set = 0; set < kSets; ++set) {
#pragma unroll
      for (int d = 0; d < kDim / 8; ++d) {
#pragma unroll
        for (int i = 0; i < 4; ++i) output_[set][d][i] *= factors[set][i / 2];
      }
    }
  }

  __device__ void add_values(const Tile& tile, const Scores& shares) {
    // Matrices: 8 keys by 8 elements, the next 8 keys, and both for the next 8 elements.
    const __nv_bfloat16* from = &tile.values[lane() % 16][lane() / 16 * 8];
#pragma unroll
    for (int k = 0; k < kKeys / 16; ++k) {
      uint32_t packed[kSets][4];
#pragma unroll
      for (int set = 0; set < kSets; ++set) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float(&eight)[4] = shares[set][2 * k + i / 2];
          packed[set][i] = pack(eight[i % 2 * 2], eight[i % 2 * 2 + 1]);
        }
      }
#pragma unroll
      for (int d = 0; d < kDim / 16; ++d) {
        uint32_t values[4];
        load_matrices_transposed(values, from + k * 16 * (kDim + 8) + d * 16);
#pragma unroll
        for (int set = 0; set < kSets; ++set) {
          multiply_two(&output_[set][2 * d], packed[set], values);
        }
      }
    }
  }

  __device__ void write() const {
#pragma unroll
    for (int set = 0; set < kSets; ++set) {
#pragma unroll
      for (int half = 0; half < 2; ++half) write(set, half, row_sum(sum_[set][half]));
    }
  }

  __device__ void write(int set, int half, float sum) const {
    const AttentionSequence& sequence = shared_.sequence;
    const int its_row = row(set, half);
    if (its_row >= shared_.rows) return;
    float factor = 1.0f;
    if (sequence.sinks != nullptr) {  // joins the denominator and nothing else
      const float largest = largest_[set][half] * (sequence.scale * kLog2E);
      const float sink = sequence.sinks[head(its_row)] * kLog2E;
      const float base = fmaxf(largest, sink);
      factor = power_of_two(largest - base);
      sum = sum * factor + power_of_two(sink - base);
    }
    factor /= sum;
    float* output = sequence.output + offset(its_row) + 2 * (lane() % 4);
#pragma unroll
    for (int d = 0; d < kDim / 8; ++d) {
      *reinterpret_cast<float2*>(output + d * 8) =
          make_float2(output_[set][d][2 * half] * factor, output_[set][d][2 * half + 1] * factor);
    }
  }

  static constexpr int kHeldDepth = Layout::kHeldQueries ? kDepth : 1;

  const AttentionShape& shape_;
  Shared& shared_;
  TileCopies<Layout> copies_;
  int first_own_;                           // position of the warp's first row
  int last_own_;                            // position of the warp's last row; none: -1
  uint32_t queries_[kHeldDepth][kSets][4];  // used where queries are held
  float output_[kSets][kDim / 8][4];
  float largest_[kSets][2];
  float sum_[kSets][2];
};

#endif

}  // namespace klotski::cuda::prefill
