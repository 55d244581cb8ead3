#include "device/cuda_call_cuda.h"
#include "device/cuda_owned_cuda.h"

namespace klotski::cuda {

// Handles are owned before the result is looked at: a test may call a success a failure.

Stream new_stream() {
  cudaStream_t made = nullptr;
  const cudaError_t result = cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking);
  Stream stream(made);
  check_cuda(result, "cudaStreamCreateWithFlags");
  return stream;
}

Event new_event(Waiting waiting) {
  cudaEvent_t made = nullptr;
  const unsigned sleeping = waiting == Waiting::sleeps ? cudaEventBlockingSync : 0;
  const cudaError_t result = cudaEventCreateWithFlags(&made, cudaEventDisableTiming | sleeping);
  Event event(made);
  check_cuda(result, "cudaEventCreateWithFlags");
  return event;
}

Pinned new_pinned(uint64_t bytes) {
  void* made = nullptr;
  const cudaError_t result = cudaHostAlloc(&made, bytes, cudaHostAllocMapped);
  Pinned memory(static_cast<std::byte*>(made));
  check_cuda(result, "cudaHostAlloc of a buffer to copy through");
  return memory;
}

}  // namespace klotski::cuda
