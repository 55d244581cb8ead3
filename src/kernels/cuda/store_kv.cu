#include <cuda_bf16.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/cuda/context_cuda.h"

namespace klotski::cuda {

namespace {

constexpr int kThreads = 256;

// New rows of one sequence that go to one page: they lie together on both sides.
struct Run {
  const float* from[2];  // keys, values; not read where `to` is null
  std::byte* to[2];
  int64_t elements[2];
  bool to_bf16;
  bool by_fours;  // all four addresses allow whole groups of four
};

__device__ void store(std::byte* to, int64_t i, float value, bool to_bf16) {
  if (to_bf16) {
    reinterpret_cast<__nv_bfloat16*>(to)[i] = __float2bfloat16_rn(value);
  } else {
    reinterpret_cast<float*>(to)[i] = value;
  }
}

__device__ void store_four(std::byte* to, int64_t i, float4 value, bool to_bf16) {
  if (to_bf16) {
    const __nv_bfloat162 low = __floats2bfloat162_rn(value.x, value.y);
    const __nv_bfloat162 high = __floats2bfloat162_rn(value.z, value.w);
    uint2 bits;
    bits.x = *reinterpret_cast<const uint32_t*>(&low);
    bits.y = *reinterpret_cast<const uint32_t*>(&high);
    reinterpret_cast<uint2*>(to)[i] = bits;
  } else {
    reinterpret_cast<float4*>(to)[i] = value;
  }
}

// Block (x, y): keys (y = 0) or values (y = 1) of run x.
__global__ void store_kv_kernel(const Run* runs) {
  const Run& run = runs[blockIdx.x];
  const float* from = run.from[blockIdx.y];
  std::byte* to = run.to[blockIdx.y];
  if (to == nullptr) return;
  const int64_t elements = run.elements[blockIdx.y];
  int64_t stored = 0;
  if (run.by_fours) {
    for (int64_t i = threadIdx.x; i < elements / 4; i += kThreads) {
      store_four(to, i, reinterpret_cast<const float4*>(from)[i], run.to_bf16);
    }
    stored = elements / 4 * 4;
  }
  for (int64_t i = stored + threadIdx.x; i < elements; i += kThreads) {
    store(to, i, from[i], run.to_bf16);
  }
}

bool aligned(const Run& run) {
  uintptr_t bits = 0;
  for (int kind = 0; kind < 2; ++kind) {
    bits |= reinterpret_cast<uintptr_t>(run.from[kind]);
    bits |= reinterpret_cast<uintptr_t>(run.to[kind]);
  }
  return bits % sizeof(float4) == 0;
}

// Cuts the rows of a sequence at the ends of pages. A page that the cache left out is null, and so
// are those of values that keys have.
void append_runs(const KvRows& rows, std::vector<Run>& runs) {
  const KvPages& cache = rows.cache;
  const int64_t widths[2] = {rows.keys.width, rows.values.width};
  for (int64_t row = 0; row < rows.keys.count;) {
    const int64_t position = rows.first_position + row;
    const auto page = static_cast<size_t>(position / cache.page_tokens);
    const int64_t place = position % cache.page_tokens;
    const int64_t count = std::min(rows.keys.count - row, cache.page_tokens - place);
    Run run = {.from = {rows.keys.row(row), rows.values.row(row)},
               .to = {cache.keys[page], cache.values.empty() ? nullptr : cache.values[page]},
               .elements = {count * widths[0], count * widths[1]},
               .to_bf16 = cache.type == DType::BF16,
               .by_fours = false};
    for (int kind = 0; kind < 2; ++kind) {
      if (run.to[kind] == nullptr) continue;
      run.to[kind] += place * widths[kind] * bytes_per_element(cache.type);
    }
    run.by_fours = aligned(run);
    runs.push_back(run);
    row += count;
  }
}

}  // namespace

void CudaProcessor::store_kv(std::span<const KvRows> sequences) const {
  std::vector<Run> runs;
  for (const KvRows& rows : sequences) append_runs(rows, runs);
  if (runs.empty()) return;
  const Uploaded<Run> uploaded(context(), std::span<const Run>(runs));
  const dim3 grid(static_cast<unsigned>(runs.size()), 2);
  store_kv_kernel<<<grid, kThreads, 0, context().stream>>>(uploaded.data());
  check_launch("store_kv");
}

}  // namespace klotski::cuda
