#pragma once

// One block of attention_decode.cu: a split of the positions that one token sees, one key-value
// head, up to kHeads of its query heads.

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/attention_cuda.h"
#include "kernels/cuda/warp_cuda.h"

namespace klotski::cuda::decode {

inline constexpr int kThreads = 128;
inline constexpr int kWarps = kThreads / 32;
inline constexpr int kChunk = 128;  // positions whose scores are in shared memory at a time
inline constexpr int kEight = 8;    // elements that a thread takes of a key or value

// Positions begin .. end - 1 for one token, which sees all of them; at least one.
struct Split {
  int sequence;
  int token;
  int begin;
  int end;
};

// Scores are in units of log2, so that shares are powers of two.
struct Statistics {
  float largest;
  float sum;  // sum of 2^(score - largest)
};

struct Partials {
  Statistics* statistics;  // [splits][query_heads]
  float* weighted;         // [splits][query_heads][value_dim], values times shares
};

struct DecodeLists {
  const AttentionSequence* sequences;
  const std::byte* const* pages;
  const Split* splits;
};

// Elements as they lie in memory: loads are issued before the first is used.
template <typename Element>
struct Eight;

template <>
struct Eight<float> {
  float4 low, high;
  __device__ void load(const float* from) {
    low = __ldg(reinterpret_cast<const float4*>(from));
    high = __ldg(reinterpret_cast<const float4*>(from) + 1);
  }
  // From and to shared memory.
  __device__ void get(const float* from) {
    low = reinterpret_cast<const float4*>(from)[0];
    high = reinterpret_cast<const float4*>(from)[1];
  }
  __device__ void put(float* to) const {
    reinterpret_cast<float4*>(to)[0] = low;
    reinterpret_cast<float4*>(to)[1] = high;
  }
  __device__ void clear() { low = high = make_float4(0, 0, 0, 0); }
  __device__ float operator[](int i) const {
    const float4& half = i < 4 ? low : high;
    return i % 4 == 0 ? half.x : i % 4 == 1 ? half.y : i % 4 == 2 ? half.z : half.w;
  }
};

template <>
struct Eight<__nv_bfloat16> {
  uint4 bits;
  __device__ void load(const __nv_bfloat16* from) {
    bits = __ldg(reinterpret_cast<const uint4*>(from));
  }
  __device__ void get(const __nv_bfloat16* from) { bits = *reinterpret_cast<const uint4*>(from); }
  __device__ void put(__nv_bfloat16* to) const { *reinterpret_cast<uint4*>(to) = bits; }
  __device__ void clear() { bits = make_uint4(0, 0, 0, 0); }
  __device__ float operator[](int i) const {
    const uint32_t two = i < 2 ? bits.x : i < 4 ? bits.y : i < 6 ? bits.z : bits.w;
    return __uint_as_float(i % 2 == 0 ? two << 16 : two & 0xFFFF0000u);
  }
};

// Adds up `count` values over `lanes` neighbouring lanes (both powers of two). Each step halves the
// values a lane keeps, so that in the end lane l has the sums l * count / lanes .. of them, or one
// that it shares with its neighbours.
template <int count, int lanes>
__device__ void fold(float* values) {
  if constexpr (lanes > 1) {
    constexpr int offset = lanes / 2;
    if constexpr (count > 1) {
      const bool upper = (threadIdx.x & offset) != 0;
#pragma unroll
      for (int i = 0; i < count / 2; ++i) {
        const float given = upper ? values[i] : values[i + count / 2];
        const float kept = upper ? values[i + count / 2] : values[i];
        values[i] = kept + __shfl_xor_sync(0xFFFFFFFFu, given, offset);
      }
      fold<count / 2, offset>(values);
    } else {
      values[0] += __shfl_xor_sync(0xFFFFFFFFu, values[0], offset);
      fold<1, offset>(values);
    }
  }
}

// kLanes lanes share a position, eight elements each; head_dim is at most 8 * kLanes.
template <typename Element, int kLanes, int kHeads>
class SplitBlock {
 public:
  struct Shared {
    alignas(16) float scores[kChunk][kHeads];  // then shares
    const Element* keys[kChunk];               // keys of this key-value head; null: not seen
    const Element* values[kChunk];
    float factors[kHeads];  // factor for the sums before this chunk
    float sums[kWarps][kHeads][kLanes * kEight];
  };

  __device__ SplitBlock(const AttentionShape& shape, const DecodeLists& lists, Shared& shared)
      : shape_(shape), lists_(lists), shared_(shared) {
    const int parts = (shape.group() + kHeads - 1) / kHeads;
    const int64_t blocks = int64_t{shape.kv_heads} * parts;
    split_index_ = blockIdx.x / blocks;
    const int part = static_cast<int>(blockIdx.x % blocks);
    split_ = lists.splits[split_index_];
    sequence_ = lists.sequences[split_.sequence];
    own_ = sequence_.first_position + split_.token;
    kv_head_ = part / parts;
    first_head_ = kv_head_ * shape.group() + part % parts * kHeads;
    heads_ = min(kHeads, (kv_head_ + 1) * shape.group() - first_head_);
    slot_ = static_cast<int>(threadIdx.x) % kLanes;
    active_ = slot_ * kEight < shape.head_dim;
  }

  __device__ void run(const Partials& partials) {
    load_queries();
    for (int chunk = split_.begin / kChunk * kChunk; chunk < split_.end; chunk += kChunk) {
      find(chunk + static_cast<int>(threadIdx.x));
      __syncthreads();
      score();
      __syncthreads();
      take_shares();
      __syncthreads();
      add_values();
      __syncthreads();  // the next chunk takes the place of these addresses and shares
    }
    write(partials);
  }

 private:
  static constexpr int kStride = kThreads / kLanes;   // positions a step
  static constexpr int kBatch = kHeads == 8 ? 4 : 8;  // steps whose loads overlap
  static constexpr int kSums = kBatch * kHeads;       // scores a batch gives a lane group
  static constexpr int kKept = kSums > kLanes ? kSums / kLanes : 1;
  static constexpr int kSharing = kLanes > kSums ? kLanes / kSums : 1;  // lanes that hold one sum
  static constexpr int kHeadsPerWarp = (kHeads + kWarps - 1) / kWarps;
  static_assert(kLanes % kBatch == 0 && kChunk / kStride == kLanes);

  __device__ void load_queries() {
    const float* token = sequence_.queries + split_.token * shape_.query_width();
#pragma unroll
    for (int h = 0; h < kHeads; ++h) {
#pragma unroll
      for (int e = 0; e < kEight; ++e) queries_[h][e] = 0.0f;
      if (h < heads_ && active_) {
        const int64_t head = first_head_ + h;
        const float* query = token + head * shape_.head_dim + slot_ * kEight;
#pragma unroll
        for (int e = 0; e < kEight; ++e) {
          queries_[h][e] = shape_.rounded_queries ? rounded(query[e]) : query[e];
        }
      }
    }
#pragma unroll
    for (int h = 0; h < kHeads; ++h) {
#pragma unroll
      for (int e = 0; e < kEight; ++e) weighted_[h][e] = 0.0f;
    }
#pragma unroll
    for (int i = 0; i < kHeadsPerWarp; ++i) statistics_[i] = {-INFINITY, 0.0f};
  }

  // Index of this thread's position in step `step` of a chunk.
  __device__ int place(int step) const {
    return step * kStride + static_cast<int>(threadIdx.x) / kLanes;
  }

  // Looks up one position a thread. A position that the token does not see may hold anything, or be
  // no memory.
  __device__ void find(int position) {
    const bool seen =
        position >= split_.begin && position < split_.end && sequence_.sees(own_, position);
    const Element* key = nullptr;
    const Element* value = nullptr;
    if (seen) {
      const int page = position / shape_.page_tokens;
      const int64_t offset =
          position % shape_.page_tokens * shape_.kv_width() + int64_t{kv_head_} * shape_.head_dim;
      const std::byte* keys = lists_.pages[sequence_.key_pages + page];
      const std::byte* values = lists_.pages[sequence_.value_pages + page];
      key = reinterpret_cast<const Element*>(keys) + offset;
      value = reinterpret_cast<const Element*>(values) + offset;
    }
    shared_.keys[threadIdx.x] = key;
    shared_.values[threadIdx.x] = value;
  }

  // Loads eight elements; zeros where the position is not seen.
  __device__ void load(Eight<Element>& to, const Element* head) const {
    to.clear();
    if (active_ && head != nullptr) to.load(head + slot_ * kEight);
  }

  __device__ void score() {
    const float scale = sequence_.scale * kLog2E;
#pragma unroll
    for (int step = 0; step < kLanes; step += kBatch) {
      Eight<Element> keys[kBatch];
#pragma unroll
      for (int b = 0; b < kBatch; ++b) load(keys[b], shared_.keys[place(step + b)]);
      float sums[kSums];
#pragma unroll
      for (int b = 0; b < kBatch; ++b) {
#pragma unroll
        for (int h = 0; h < kHeads; ++h) {
          float sum = 0.0f;
#pragma unroll
          for (int e = 0; e < kEight; ++e) sum = fmaf(queries_[h][e], keys[b][e], sum);
          sums[b * kHeads + h] = sum;
        }
      }
      fold<kSums, kLanes>(sums);
#pragma unroll
      for (int i = 0; i < kKept; ++i) {
        const int index = slot_ / kSharing * kKept + i;
        const int at = place(step + index / kHeads);
        const bool seen = shared_.keys[at] != nullptr;
        shared_.scores[at][index % kHeads] = seen ? sums[i] * scale : -INFINITY;
      }
    }
  }

  // Scores become shares; warp w does so for heads w, w + kWarps, ...
  __device__ void take_shares() {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int i = 0; i < kHeadsPerWarp; ++i) {
      const int head = static_cast<int>(threadIdx.x) / 32 + i * kWarps;
      if (head >= kHeads) break;
      Statistics& statistics = statistics_[i];
      float scores[kChunk / 32];
      float largest = statistics.largest;
#pragma unroll
      for (int k = 0; k < kChunk / 32; ++k) {
        scores[k] = shared_.scores[lane + 32 * k][head];
        largest = fmaxf(largest, scores[k]);
      }
      largest = warp_max(largest);
      const float base = largest == -INFINITY ? 0.0f : largest;  // nothing seen yet
      float sum = 0.0f;
#pragma unroll
      for (int k = 0; k < kChunk / 32; ++k) {
        const float share = power_of_two(scores[k] - base);
        shared_.scores[lane + 32 * k][head] = share;
        sum += share;
      }
      const float factor = power_of_two(statistics.largest - base);
      statistics = {largest, statistics.sum * factor + warp_sum(sum)};
      if (lane == 0) shared_.factors[head] = factor;
    }
  }

  __device__ void add_values() {
#pragma unroll
    for (int h = 0; h < kHeads; ++h) {
      const float factor = shared_.factors[h];
#pragma unroll
      for (int e = 0; e < kEight; ++e) weighted_[h][e] *= factor;
    }
#pragma unroll
    for (int step = 0; step < kLanes; step += kBatch) {
      Eight<Element> values[kBatch];
#pragma unroll
      for (int b = 0; b < kBatch; ++b) load(values[b], shared_.values[place(step + b)]);
#pragma unroll
      for (int b = 0; b < kBatch; ++b) {
        const float* shares = shared_.scores[place(step + b)];
#pragma unroll
        for (int h = 0; h < kHeads; ++h) {
          const float share = shares[h];
#pragma unroll
          for (int e = 0; e < kEight; ++e) {
            weighted_[h][e] = fmaf(share, values[b][e], weighted_[h][e]);
          }
        }
      }
    }
  }

  // Adds up the threads' sums: first over a warp's positions, then over the warps in their order.
  __device__ void write(const Partials& partials) {
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int h = 0; h < kHeads; ++h) {
#pragma unroll
      for (int e = 0; e < kEight; ++e) {
        float sum = weighted_[h][e];
#pragma unroll
        for (int offset = kLanes; offset < 32; offset *= 2) {
          sum += __shfl_xor_sync(0xFFFFFFFFu, sum, offset);
        }
        if (lane < kLanes) shared_.sums[warp][h][slot_ * kEight + e] = sum;
      }
    }
    __syncthreads();
    const int64_t first = split_index_ * shape_.query_heads + first_head_;
    for (int i = static_cast<int>(threadIdx.x); i < heads_ * shape_.head_dim; i += kThreads) {
      const int head = i / shape_.head_dim;
      const int d = i % shape_.head_dim;
      float sum = 0.0f;
#pragma unroll
      for (int w = 0; w < kWarps; ++w) sum += shared_.sums[w][head][d];
      partials.weighted[(first + head) * shape_.head_dim + d] = sum;
    }
#pragma unroll
    for (int i = 0; i < kHeadsPerWarp; ++i) {
      const int head = warp + i * kWarps;
      if (lane == 0 && head < heads_) partials.statistics[first + head] = statistics_[i];
    }
  }

  const AttentionShape& shape_;
  const DecodeLists& lists_;
  Shared& shared_;
  int64_t split_index_;
  Split split_;
  AttentionSequence sequence_;
  int own_;  // position of the token
  int kv_head_;
  int first_head_;
  int heads_;
  int slot_;
  bool active_;
  float queries_[kHeads][kEight];
  float weighted_[kHeads][kEight];
  Statistics statistics_[kHeadsPerWarp];  // equal in all lanes of a warp
};

}  // namespace klotski::cuda::decode
