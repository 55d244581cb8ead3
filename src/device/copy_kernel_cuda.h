#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

namespace klotski::cuda {

// Copies by a kernel in the order of the stream, over the bus where one side is pinned memory of
// the program as the device addresses it. A device's copy engines may be busy with weights for many
// milliseconds, and what is behind those in their queues waits; this does not. Both addresses are
// equally far from a multiple of kCopyVector.
void copy_by_kernel(std::byte* to, const std::byte* from, uint64_t bytes, cudaStream_t stream);

inline constexpr uint64_t kCopyVector = 16;

inline uint64_t misalignment(const std::byte* memory) {
  return reinterpret_cast<uintptr_t>(memory) % kCopyVector;
}

}  // namespace klotski::cuda
