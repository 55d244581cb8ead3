#include <algorithm>
#include <cstring>

#include "device/cuda_call_cuda.h"
#include "kernels/cuda/staging_cuda.h"

namespace klotski::cuda {

namespace {

constexpr uint64_t kPieceBytes = uint64_t{4} << 20;
constexpr uint64_t kVector = sizeof(uint4);
constexpr unsigned kThreads = 256;
constexpr unsigned kMostBlocks = 64;  // enough loads under way for the bus

// Both addresses are equally far from a multiple of 16.
__global__ void copy_bytes(std::byte* to, const std::byte* from, uint64_t bytes) {
  const uint64_t thread = blockIdx.x * uint64_t{kThreads} + threadIdx.x;
  const uint64_t to_boundary = (kVector - reinterpret_cast<uintptr_t>(to) % kVector) % kVector;
  const uint64_t head = to_boundary < bytes ? to_boundary : bytes;
  const uint64_t vectors = (bytes - head) / kVector;
  const uint64_t tail = head + vectors * kVector;
  if (thread < head) to[thread] = from[thread];
  if (thread < bytes - tail) to[tail + thread] = from[tail + thread];
  auto* vectors_to = reinterpret_cast<uint4*>(to + head);
  const auto* vectors_from = reinterpret_cast<const uint4*>(from + head);
  for (uint64_t i = thread; i < vectors; i += uint64_t{gridDim.x} * kThreads) {
    vectors_to[i] = __ldcv(vectors_from + i);  // no cache may keep what the program overwrites
  }
}

void launch_copy(std::byte* to, const std::byte* from, uint64_t bytes, cudaStream_t stream) {
  const uint64_t blocks = bytes / (kVector * kThreads) + 1;
  copy_bytes<<<static_cast<unsigned>(std::min<uint64_t>(blocks, kMostBlocks)), kThreads, 0,
               stream>>>(to, from, bytes);
  check_cuda(cudaGetLastError(), "copy_bytes");
}

uint64_t misalignment(const std::byte* memory) {
  return reinterpret_cast<uintptr_t>(memory) % kVector;
}

}  // namespace

Staging::Piece::Piece() {
  void* memory = nullptr;
  check_cuda(cudaHostAlloc(&memory, kPieceBytes, cudaHostAllocMapped), "cudaHostAlloc");
  host.reset(static_cast<std::byte*>(memory));
  void* as_seen = nullptr;
  check_cuda(cudaHostGetDevicePointer(&as_seen, memory, 0), "cudaHostGetDevicePointer");
  device = static_cast<std::byte*>(as_seen);
  cudaEvent_t event = nullptr;
  check_cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreateWithFlags");
  emptied.reset(event);
}

void Staging::next_piece() {
  check_cuda(cudaEventRecord(sending_[current_].emptied.get(), stream_), "cudaEventRecord");
  current_ = 1 - current_;
  used_ = 0;
  check_cuda(cudaEventSynchronize(sending_[current_].emptied.get()), "cudaEventSynchronize");
}

void Staging::upload(std::byte* to, const std::byte* from, uint64_t bytes) {
  while (bytes > 0) {
    if (used_ + misalignment(to) >= kPieceBytes) next_piece();
    const uint64_t begin = used_ + misalignment(to);
    const uint64_t count = std::min(bytes, kPieceBytes - begin);
    const Piece& piece = sending_[current_];
    std::memcpy(piece.host.get() + begin, from, count);
    launch_copy(to, piece.device + begin, count, stream_);
    used_ = (begin + count + kVector - 1) / kVector * kVector;
    to += count;
    from += count;
    bytes -= count;
  }
}

void Staging::download(std::byte* to, const std::byte* from, uint64_t bytes) {
  while (bytes > 0) {
    const uint64_t begin = misalignment(from);
    const uint64_t count = std::min(bytes, kPieceBytes - begin);
    launch_copy(landing_.device + begin, from, count, stream_);
    check_cuda(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
    std::memcpy(to, landing_.host.get() + begin, count);
    to += count;
    from += count;
    bytes -= count;
  }
}

}  // namespace klotski::cuda
