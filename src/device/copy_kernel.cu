#include <algorithm>

#include "device/copy_kernel_cuda.h"
#include "device/cuda_call_cuda.h"

namespace klotski::cuda {

namespace {

constexpr unsigned kThreads = 256;
constexpr unsigned kMostBlocks = 64;  // enough loads under way for the bus
static_assert(sizeof(uint4) == kCopyVector);

__global__ void copy_bytes(std::byte* to, const std::byte* from, uint64_t bytes) {
  const uint64_t thread = blockIdx.x * uint64_t{kThreads} + threadIdx.x;
  const uint64_t to_boundary =
      (kCopyVector - reinterpret_cast<uintptr_t>(to) % kCopyVector) % kCopyVector;
  const uint64_t head = to_boundary < bytes ? to_boundary : bytes;
  const uint64_t vectors = (bytes - head) / kCopyVector;
  const uint64_t tail = head + vectors * kCopyVector;
  if (thread < head) to[thread] = from[thread];
  if (thread < bytes - tail) to[tail + thread] = from[tail + thread];
  auto* vectors_to = reinterpret_cast<uint4*>(to + head);
  const auto* vectors_from = reinterpret_cast<const uint4*>(from + head);
  for (uint64_t i = thread; i < vectors; i += uint64_t{gridDim.x} * kThreads) {
    vectors_to[i] = __ldcv(vectors_from + i);  // no cache may keep what the program overwrites
  }
}

}  // namespace

void copy_by_kernel(std::byte* to, const std::byte* from, uint64_t bytes, cudaStream_t stream) {
  const uint64_t blocks = bytes / (kCopyVector * kThreads) + 1;
  copy_bytes<<<static_cast<unsigned>(std::min<uint64_t>(blocks, kMostBlocks)), kThreads, 0,
               stream>>>(to, from, bytes);
  check_cuda(cudaGetLastError(), "copy_bytes");
}

}  // namespace klotski::cuda
