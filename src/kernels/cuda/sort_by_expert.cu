#include <vector>

#include "base/error.h"
#include "kernels/cuda/context_cuda.h"
#include "kernels/cuda/vectors_cuda.h"
#include "kernels/cuda/warp_cuda.h"

// A counting sort in three steps: each warp counts the choices of its tile by expert; the counts of
// an expert become the places of its tiles among its own; each warp puts its choices there, in
// their order. No step depends on which warp is first.

namespace klotski::cuda {

namespace {

constexpr int64_t kMostExperts = 1024;
constexpr int64_t kTileChoices = 512;  // a warp's
constexpr unsigned kTiles = 4;         // tiles of a block: their counts fit shared memory

struct Part {
  int64_t begin;  // index of its first choice among the choices of all parts
  const ExpertId* experts;
  int64_t top_k;
  int64_t first_row;
  int64_t first_output;
  const float* scales;  // by choice, or null
};

struct Sorting {
  const Part* parts;
  int part_count;
  int experts;
  int64_t choices;
  int64_t tiles;
  int32_t* counts;  // [experts][tiles]
  int32_t* totals;  // [experts]
  int32_t* in_rows;
  int32_t* out_rows;
  float* scales;  // or null
};

// The last part that begins at this choice or before it; empty parts are not in the list.
__device__ __forceinline__ const Part& part_of(const Sorting& task, int64_t choice) {
  int begin = 0;
  int end = task.part_count;
  while (end - begin > 1) {
    const int middle = (begin + end) / 2;
    (task.parts[middle].begin <= choice ? begin : end) = middle;
  }
  return task.parts[begin];
}

__device__ __forceinline__ int64_t tile_of_warp() {
  return int64_t{blockIdx.x} * kTiles + threadIdx.x / kWarp;
}

__device__ __forceinline__ int64_t end_of_tile(const Sorting& task, int64_t tile) {
  return min((tile + 1) * kTileChoices, task.choices);
}

// One of 32 neighbours that a warp looks at together.
struct Choice {
  const Part* part;
  int64_t index;  // index in its part
  int expert;     // -1 behind the end
  int below;      // choices of this expert in lower lanes ...
  int together;   // ... and in the whole warp
};

__device__ __forceinline__ Choice choice_of_lane(const Sorting& task, int64_t first, int64_t end) {
  const unsigned lane = threadIdx.x % kWarp;
  Choice choice = {nullptr, 0, -1, 0, 0};
  if (first + lane < end) {
    choice.part = &part_of(task, first + lane);
    choice.index = first + lane - choice.part->begin;
    choice.expert = choice.part->experts[choice.index].value;
  }
  const unsigned same = __match_any_sync(kWholeWarp, choice.expert);
  choice.below = __popc(same & ((1u << lane) - 1));
  choice.together = __popc(same);
  return choice;
}

__global__ void count_tiles(Sorting task) {
  extern __shared__ int32_t shared[];
  int32_t* counts = shared + threadIdx.x / kWarp * task.experts;
  const int64_t tile = tile_of_warp();
  if (tile >= task.tiles) return;
  for (int e = threadIdx.x % kWarp; e < task.experts; e += kWarp) counts[e] = 0;
  __syncwarp();
  const int64_t end = end_of_tile(task, tile);
  for (int64_t first = tile * kTileChoices; first < end; first += kWarp) {
    const Choice choice = choice_of_lane(task, first, end);
    // One lane an expert.
    if (choice.expert >= 0 && choice.below == 0) counts[choice.expert] += choice.together;
    __syncwarp();
  }
  for (int64_t e = threadIdx.x % kWarp; e < task.experts; e += kWarp) {
    task.counts[e * task.tiles + tile] = counts[e];
  }
}

// The sum of the values of lower lanes; `carry` grows by the sum of all lanes.
__device__ __forceinline__ int32_t sum_below(int32_t value, int32_t& carry) {
  const unsigned lane = threadIdx.x % kWarp;
  int32_t sum = value;
#pragma unroll
  for (unsigned distance = 1; distance < kWarp; distance *= 2) {
    const int32_t other = __shfl_up_sync(kWholeWarp, sum, distance);
    if (lane >= distance) sum += other;
  }
  const int32_t below = carry + sum - value;
  carry += __shfl_sync(kWholeWarp, sum, kWarp - 1);
  return below;
}

// A warp an expert: counts become how many choices of the expert are in earlier tiles.
__global__ void place_tiles(Sorting task) {
  const int64_t expert = global_thread() / kWarp;
  const unsigned lane = threadIdx.x % kWarp;
  if (expert >= task.experts) return;
  int32_t* counts = task.counts + expert * task.tiles;
  int32_t total = 0;
  for (int64_t first = 0; first < task.tiles; first += kWarp) {
    const int64_t tile = first + lane;
    const int32_t below = sum_below(tile < task.tiles ? counts[tile] : 0, total);
    if (tile < task.tiles) counts[tile] = below;
  }
  if (lane == 0) task.totals[expert] = total;
}

__global__ void place_choices(Sorting task) {
  extern __shared__ int32_t shared[];
  int32_t* places = shared + threadIdx.x / kWarp * task.experts;
  const int64_t tile = tile_of_warp();
  const unsigned lane = threadIdx.x % kWarp;
  if (tile >= task.tiles) return;
  int32_t earlier_experts = 0;
  for (int first = 0; first < task.experts; first += kWarp) {
    const int expert = first + static_cast<int>(lane);
    const bool exists = expert < task.experts;
    const int32_t begin = sum_below(exists ? task.totals[expert] : 0, earlier_experts);
    if (exists) places[expert] = begin + task.counts[expert * task.tiles + tile];
  }
  __syncwarp();
  const int64_t end = end_of_tile(task, tile);
  for (int64_t first = tile * kTileChoices; first < end; first += kWarp) {
    const Choice choice = choice_of_lane(task, first, end);
    if (choice.expert >= 0) {
      const Part& part = *choice.part;
      const int32_t place = places[choice.expert] + choice.below;
      task.in_rows[place] = static_cast<int32_t>(part.first_row + choice.index / part.top_k);
      task.out_rows[place] = static_cast<int32_t>(part.first_output + choice.index);
      if (task.scales) task.scales[place] = part.scales[choice.index];
    }
    __syncwarp();
    if (choice.expert >= 0 && choice.below == 0) places[choice.expert] += choice.together;
    __syncwarp();
  }
}

}  // namespace

void CudaProcessor::sort_by_expert(std::span<const RoutedRows> parts, int64_t experts,
                                   std::span<int32_t> in_rows, std::span<int32_t> out_rows,
                                   std::span<float> scales) const {
  std::vector<Part> listed;
  int64_t choices = 0;
  for (const RoutedRows& part : parts) {
    if (part.experts.empty()) continue;
    listed.push_back({choices, part.experts.data(), part.top_k, part.first_row, part.first_output,
                      part.scales.data()});
    choices += static_cast<int64_t>(part.experts.size());
  }
  if (choices == 0) return;
  if (experts > kMostExperts) {
    fail(ErrorKind::bad_model, "a layer has {} experts, and a device sorts by {} at most", experts,
         kMostExperts);
  }
  const Context& with = context();
  const int64_t tiles = (choices + kTileChoices - 1) / kTileChoices;
  const Uploaded<Part> uploaded(with, std::span<const Part>(listed));
  const Scratch counts(with, static_cast<uint64_t>(experts * tiles) * sizeof(int32_t));
  const Scratch totals(with, static_cast<uint64_t>(experts) * sizeof(int32_t));
  const Sorting task = {uploaded.data(),
                        static_cast<int>(listed.size()),
                        static_cast<int>(experts),
                        choices,
                        tiles,
                        counts.as<int32_t>(),
                        totals.as<int32_t>(),
                        in_rows.data(),
                        out_rows.data(),
                        scales.empty() ? nullptr : scales.data()};
  const unsigned tile_blocks = blocks_of(tiles, kTiles);
  const size_t shared_bytes = kTiles * static_cast<size_t>(experts) * sizeof(int32_t);
  const cudaStream_t stream = with.stream;
  count_tiles<<<tile_blocks, kTiles * kWarp, shared_bytes, stream>>>(task);
  check_launch("count_tiles");
  place_tiles<<<blocks_of(experts, kThreads / kWarp), kThreads, 0, stream>>>(task);
  check_launch("place_tiles");
  place_choices<<<tile_blocks, kTiles * kWarp, shared_bytes, stream>>>(task);
  check_launch("place_choices");
}

}  // namespace klotski::cuda
