#pragma once

// One block of attention_decode.cu where values are the first numbers of keys, which may be wider
// than a warp takes at once: a split of the positions that one token sees, one key-value head, up
// to kHeads of its query heads. Keys come to shared memory, some positions at a time, and are read
// there twice, as keys and as values.

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/attention_cuda.h"
#include "kernels/cuda/attention_split_cuda.h"
#include "kernels/cuda/warp_cuda.h"

namespace klotski::cuda::decode {

inline constexpr int kMostVectors = 3;  // of 8 elements that a lane takes of a key

// A warp has kWarpHeads query heads. Its lanes share a key: vector v of lane l are the elements
// from (32 * v + l) * 8 on. head_dim and value_dim are multiples of 8.
template <typename Element, int kVectors>
class WideBlock {
 public:
  static constexpr int kWarpHeads = 2;
  static constexpr int kHeads = kWarps * kWarpHeads;
  static constexpr int kTile = 16;          // positions in shared memory
  static_assert(kTile * kWarpHeads == 32);  // a score a lane

  struct Shared {
    alignas(16) Element keys[kTile][kVectors * 32 * kEight];
  };

  __device__ WideBlock(const AttentionShape& shape, const DecodeLists& lists, Shared& shared)
      : shape_(shape), lists_(lists), shared_(shared) {
    const int parts = (shape.group() + kHeads - 1) / kHeads;
    const int64_t blocks = int64_t{shape.kv_heads} * parts;
    split_index_ = blockIdx.x / blocks;
    const int part = static_cast<int>(blockIdx.x % blocks);
    split_ = lists.splits[split_index_];
    sequence_ = lists.sequences[split_.sequence];
    kv_head_ = part / parts;
    lane_ = static_cast<int>(threadIdx.x) % 32;
    const int in_group = part % parts * kHeads + static_cast<int>(threadIdx.x) / 32 * kWarpHeads;
    first_head_ = kv_head_ * shape.group() + in_group;
    heads_ = min(kWarpHeads, shape.group() - in_group);
  }

  __device__ void run(const Partials& partials) {
    load_queries();
    for (int first = split_.begin; first < split_.end; first += kTile) {
      load_keys(first);
      __syncthreads();
      attend(min(kTile, split_.end - first));
      __syncthreads();  // the next keys take the place of these
    }
    write(partials);
  }

 private:
  // The first element of this lane's vector v.
  __device__ int element(int v) const { return (v * 32 + lane_) * kEight; }

  __device__ void load_queries() {
    const float* token = sequence_.queries + split_.token * shape_.query_width();
#pragma unroll
    for (int h = 0; h < kWarpHeads; ++h) {
      const float* query = token + int64_t{first_head_ + h} * shape_.head_dim;
#pragma unroll
      for (int v = 0; v < kVectors; ++v) {
        const bool active = h < heads_ && element(v) < shape_.head_dim;
#pragma unroll
        for (int e = 0; e < kEight; ++e) {
          const float value = active ? query[element(v) + e] : 0.0f;
          queries_[h][v][e] = shape_.rounded_queries ? rounded(value) : value;
          weighted_[h][v][e] = 0.0f;
        }
      }
    }
  }

  // Keys from position `first` on; zeros behind the split's end.
  __device__ void load_keys(int first) {
    const int vectors = shape_.head_dim / kEight;
    for (int i = static_cast<int>(threadIdx.x); i < kTile * vectors; i += kThreads) {
      const int position = first + i / vectors;
      const int at = i % vectors * kEight;
      Eight<Element> eight;
      eight.clear();
      if (position < split_.end) {
        const std::byte* page = lists_.pages[sequence_.key_pages + position / shape_.page_tokens];
        const int64_t offset = position % shape_.page_tokens * shape_.kv_width() +
                               int64_t{kv_head_} * shape_.head_dim + at;
        eight.load(reinterpret_cast<const Element*>(page) + offset);
      }
      eight.put(&shared_.keys[i / vectors][at]);
    }
  }

  // This lane's vector v of a key; zeros behind its first `dim` elements.
  __device__ Eight<Element> vector(int place, int v, int dim) const {
    Eight<Element> eight;
    eight.clear();
    if (element(v) < dim) eight.get(&shared_.keys[place][element(v)]);
    return eight;
  }

  // The score of position lane / kWarpHeads with head lane % kWarpHeads, in units of log2; minus
  // infinity behind the first `count` positions.
  __device__ float score(int count) const {
    float sums[kTile * kWarpHeads];
#pragma unroll
    for (int p = 0; p < kTile; ++p) {
#pragma unroll
      for (int h = 0; h < kWarpHeads; ++h) sums[p * kWarpHeads + h] = 0.0f;
#pragma unroll
      for (int v = 0; v < kVectors; ++v) {
        const Eight<Element> key = vector(p, v, shape_.head_dim);
#pragma unroll
        for (int e = 0; e < kEight; ++e) {
#pragma unroll
          for (int h = 0; h < kWarpHeads; ++h) {
            float& sum = sums[p * kWarpHeads + h];
            sum = fmaf(queries_[h][v][e], key[e], sum);
          }
        }
      }
    }
    fold<kTile * kWarpHeads, 32>(sums);
    return lane_ / kWarpHeads < count ? sums[0] * (sequence_.scale * kLog2E) : -INFINITY;
  }

  // The first `count` positions of the tile, at least one.
  __device__ void attend(int count) {
    const float own = score(count);
    float largest = fmaxf(statistics_.largest, own);
#pragma unroll
    for (int distance = kWarpHeads; distance < 32; distance *= 2) {
      largest = fmaxf(largest, __shfl_xor_sync(kWholeWarp, largest, distance));
    }
    const float share = power_of_two(own - largest);
    float sum = share;
#pragma unroll
    for (int distance = kWarpHeads; distance < 32; distance *= 2) {
      sum += __shfl_xor_sync(kWholeWarp, sum, distance);
    }
    const float factor = power_of_two(statistics_.largest - largest);
    statistics_ = {largest, statistics_.sum * factor + sum};
    add_values(share, factor);
  }

  __device__ void add_values(float share, float factor) {
#pragma unroll
    for (int h = 0; h < kWarpHeads; ++h) {
      const float of_head = __shfl_sync(kWholeWarp, factor, h);
#pragma unroll
      for (int v = 0; v < kVectors; ++v) {
#pragma unroll
        for (int e = 0; e < kEight; ++e) weighted_[h][v][e] *= of_head;
      }
    }
#pragma unroll
    for (int p = 0; p < kTile; ++p) {
      float shares[kWarpHeads];
#pragma unroll
      for (int h = 0; h < kWarpHeads; ++h) {
        shares[h] = __shfl_sync(kWholeWarp, share, p * kWarpHeads + h);
      }
#pragma unroll
      for (int v = 0; v < kVectors; ++v) {
        const Eight<Element> value = vector(p, v, shape_.value_dim);
#pragma unroll
        for (int e = 0; e < kEight; ++e) {
#pragma unroll
          for (int h = 0; h < kWarpHeads; ++h) {
            weighted_[h][v][e] = fmaf(shares[h], value[e], weighted_[h][v][e]);
          }
        }
      }
    }
  }

  __device__ void write(const Partials& partials) const {
    const int64_t first = split_index_ * shape_.query_heads + first_head_;
#pragma unroll
    for (int h = 0; h < kWarpHeads; ++h) {
      if (h >= heads_) continue;
      float* out = partials.weighted + (first + h) * shape_.value_dim;
#pragma unroll
      for (int v = 0; v < kVectors; ++v) {
        if (element(v) >= shape_.value_dim) continue;
#pragma unroll
        for (int e = 0; e < kEight; ++e) out[element(v) + e] = weighted_[h][v][e];
      }
    }
    if (lane_ < heads_) partials.statistics[first + lane_] = statistics_;
  }

  const AttentionShape& shape_;
  const DecodeLists& lists_;
  Shared& shared_;
  int64_t split_index_;
  Split split_;
  AttentionSequence sequence_;
  int kv_head_;
  int lane_;
  int first_head_;  // of this warp
  int heads_;       // of this warp; none or fewer than none where the group has no more
  float queries_[kWarpHeads][kVectors][kEight];
  float weighted_[kWarpHeads][kVectors][kEight];
  Statistics statistics_ = {-INFINITY, 0.0f};  // of head lane % kWarpHeads
};

}  // namespace klotski::cuda::decode
