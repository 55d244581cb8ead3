#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "device/device.h"

namespace klotski::cuda {

// Copies by a kernel in the order of the stream, over the bus where one side is pinned memory of
// the program as the device addresses it. Copies by a device's copy engines may wait many
// milliseconds behind weights in the engines' queues; copies by a kernel do not. Both addresses of
// a piece are equally far from a multiple of kCopyVector, and no piece touches another's bytes.
void copy_by_kernel(std::span<const CopyPiece> pieces, cudaStream_t stream);
inline void copy_by_kernel(const CopyPiece& piece, cudaStream_t stream) {
  copy_by_kernel(std::span(&piece, 1), stream);
}

inline constexpr uint64_t kCopyVector = 16;

inline uint64_t misalignment(const std::byte* memory) {
  return reinterpret_cast<uintptr_t>(memory) % kCopyVector;
}

}  // namespace klotski::cuda
