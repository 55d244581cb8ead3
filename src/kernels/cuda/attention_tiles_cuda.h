#pragma once

// Keys and values of a block of attention_prefill.cu: in tiles at multiples of a size, copied to
// shared memory during the arithmetic, a few tiles ahead of it.

#include <cuda_bf16.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/attention_cuda.h"
#include "kernels/cuda/attention_mma_cuda.h"

namespace klotski::cuda::prefill {

struct PrefillWork {
  int sequence;
  int first_row;
};

struct PrefillLists {
  const AttentionSequence* sequences;
  const std::byte* const* pages;
  const PrefillWork* work;
};

// Tiles that some row of the block sees, in the order of positions: first .. prefix_end - 1 where
// there are any of these, then begin .. end - 1.
struct TileRange {
  int first, prefix_end, begin, end;

  TileRange() = default;
  __device__ TileRange(const SeenRanges& seen, int keys) {
    first = seen.prefix_begin / keys;
    prefix_end = seen.prefix_end > seen.prefix_begin ? (seen.prefix_end + keys - 1) / keys : first;
    begin = max(seen.begin / keys, prefix_end);
    end = (seen.end + keys - 1) / keys;
    if (first == prefix_end) first = begin;
  }
  __device__ int after(int tile) const { return tile + 1 == prefix_end ? begin : tile + 1; }
};

// Layout: kDim; kWarps, kSets of 16 rows each; kKeys a tile; kStages, the tiles in shared memory;
// kFirstTiles of these to copy at once; kBlocks a multiprocessor; kHeldQueries, whether queries
// stay in registers.
template <typename Layout>
struct PrefillShared {
  static constexpr int kKeys = Layout::kKeys;
  static constexpr int kRows = Layout::kWarps * Layout::kSets * 16;
  // Eight elements more than a head: the eight rows that ldmatrix reads lie in different banks.
  using Row = __nv_bfloat16[Layout::kDim + 8];
  struct Tile {
    Row keys[kKeys];
    Row values[kKeys];
  };

  Tile tiles[Layout::kStages];
  Row stored_queries[Layout::kHeldQueries ? 1 : kRows];
  const std::byte* sources[Layout::kStages][2][kKeys];  // keys, then values; null: not seen
  // Values that are equal for all threads of the block: registers are for operands.
  AttentionSequence sequence;
  SeenRanges seen;  // positions that any row sees
  TileRange range;
  int group;
  int rows;             // rows of the sequence and the key-value head
  int first_row;        // the block's first row
  int page_bits;        // a page has 2^page_bits positions
  int64_t token_bytes;  // bytes of a token's keys, or of its values
  int64_t head_offset;  // bytes before the key-value head

  // Queries that are held pass through the tile that is filled last.
  __device__ Row* queries() {
    static_assert(!Layout::kHeldQueries ||
                  (kRows <= kKeys && Layout::kFirstTiles < Layout::kStages));
    return Layout::kHeldQueries ? tiles[Layout::kStages - 1].keys : stored_queries;
  }
};

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800

template <typename Layout>
class TileCopies {
 public:
  using Shared = PrefillShared<Layout>;

  __device__ TileCopies(const std::byte* const* pages, Shared& shared)
      : pages_(pages), shared_(shared) {}

  __device__ void begin() const {
    int tile = shared_.range.first;
#pragma unroll
    for (int stage = 0; stage < kStages; ++stage) {
      tell(stage, find(tile));
      tile = shared_.range.after(tile);
    }
    __syncthreads();
#pragma unroll
    for (int stage = 0; stage < Layout::kFirstTiles; ++stage) {
      load(stage);
      commit_copies();
    }
  }

  // Calls attend(tile, its first position) once the tile is there; for all threads of the block.
  template <typename Attend>
  __device__ void for_each_tile(const Attend& attend) const {
    const TileRange& range = shared_.range;
    int tile = range.first;
    for (int stage = 0; tile < range.end; stage = stage + 1 == kStages ? 0 : stage + 1) {
      wait_for_copies<kStages - 2>();
      __syncthreads();  // the tile is there, and all threads are done with the one before it
      int last = tile;
#pragma unroll
      for (int i = 1; i < kStages; ++i) last = range.after(last);
      const bool is_first = tile == range.first;
      if (last < range.end && !(kAllAtOnce && is_first)) load(stage == 0 ? kStages - 1 : stage - 1);
      commit_copies();  // even without copies: groups are counted
      // The answer takes its time: it is written down after the work.
      const std::byte* source = find(range.after(last));
      attend(shared_.tiles[stage], tile * kKeys);
      tell(stage, source);
      tile = range.after(tile);
    }
  }

 private:
  static constexpr int kKeys = Layout::kKeys;
  static constexpr int kStages = Layout::kStages;
  static constexpr bool kAllAtOnce = Layout::kFirstTiles == kStages;
  static_assert(kAllAtOnce || Layout::kFirstTiles == kStages - 1);
  static constexpr int kThreads = Layout::kWarps * 32;
  static constexpr int kThreadsPerKey = 8;  // together they copy 128 bytes at a time
  static_assert(2 * kKeys <= kThreads && kKeys % (kThreads / kThreadsPerKey) == 0);

  // Address of the key or value that this thread looks up; null where no row sees it.
  __device__ const std::byte* find(int tile) const {
    const int key = static_cast<int>(threadIdx.x) % kKeys;
    const int position = tile * kKeys + key;
    if (threadIdx.x >= 2 * kKeys || !shared_.seen.has(position)) return nullptr;
    const AttentionSequence& sequence = shared_.sequence;
    const int64_t pages = threadIdx.x < kKeys ? sequence.key_pages : sequence.value_pages;
    const int page = position >> shared_.page_bits;
    const int64_t place = position - (page << shared_.page_bits);
    return pages_[pages + page] + place * shared_.token_bytes + shared_.head_offset;
  }

  // Hands an address to load(), which reads it behind the next barrier.
  __device__ void tell(int stage, const std::byte* source) const {
    const int key = static_cast<int>(threadIdx.x) % kKeys;
    if (threadIdx.x < 2 * kKeys) shared_.sources[stage][threadIdx.x / kKeys][key] = source;
  }

  // Loads a tile. Positions that no row sees may hold anything, or be no memory: zeros stand for
  // them.
  __device__ void load(int stage) const {
    const int key = static_cast<int>(threadIdx.x) / kThreadsPerKey;
#pragma unroll
    for (int i = 0; i < kKeys; i += kThreads / kThreadsPerKey) {
      copy(shared_.tiles[stage].keys[key + i], shared_.sources[stage][0][key + i]);
      copy(shared_.tiles[stage].values[key + i], shared_.sources[stage][1][key + i]);
    }
  }

  __device__ void copy(__nv_bfloat16* to, const std::byte* source) const {
    constexpr int kPieces = Layout::kDim / 8;  // pieces of 16 bytes, a key
    const void* any = pages_;                  // an address that is one
#pragma unroll
    for (int step = 0; step < kPieces; step += kThreadsPerKey) {
      const int piece = step + static_cast<int>(threadIdx.x) % kThreadsPerKey;
      if (piece >= kPieces) break;
      const bool wanted = source != nullptr;
      copy_async(to + piece * 8, wanted ? source + piece * 16 : any, wanted);
    }
  }

  const std::byte* const* pages_;
  Shared& shared_;
};

#endif

}  // namespace klotski::cuda::prefill
