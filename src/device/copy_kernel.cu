#include <algorithm>

#include "device/copy_kernel_cuda.h"
#include "device/cuda_call_cuda.h"

namespace klotski::cuda {

namespace {

constexpr unsigned kThreads = 256;
constexpr unsigned kMostBlocks = 64;  // about: enough loads under way for the bus
constexpr size_t kMostPieces = 128;   // pieces of one launch: a kernel's arguments hold 4 KiB

template <size_t kMost>
struct Pieces {
  CopyPiece one[kMost];
};
static_assert(sizeof(uint4) == kCopyVector);

// Copies pieces: the blocks (x, y) of all x copy piece y.
template <size_t kMost>
__global__ void copy_pieces(const __grid_constant__ Pieces<kMost> pieces) {
  const auto [to, from, bytes] = pieces.one[blockIdx.y];
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
    vectors_to[i] = __ldcv(vectors_from + i);  // the program overwrites the bytes: no cache
  }
}

template <size_t kMost>
void copy_in_one_call(std::span<const CopyPiece> pieces, cudaStream_t stream) {
  Pieces<kMost> given;
  uint64_t largest = 0;
  for (size_t i = 0; i < pieces.size(); ++i) {
    given.one[i] = pieces[i];
    largest = std::max(largest, pieces[i].bytes);
  }
  const auto count = static_cast<unsigned>(pieces.size());
  const uint64_t wanted = largest / (kCopyVector * kThreads) + 1;
  const uint64_t most = std::max(1U, kMostBlocks / count);
  const dim3 blocks(static_cast<unsigned>(std::min(wanted, most)), count);
  copy_pieces<kMost><<<blocks, kThreads, 0, stream>>>(given);
  check_cuda(cudaGetLastError(), "copy_pieces");
}

}  // namespace

void copy_by_kernel(std::span<const CopyPiece> pieces, cudaStream_t stream) {
  if (pieces.size() == 1) return copy_in_one_call<1>(pieces, stream);
  for (size_t begin = 0; begin < pieces.size(); begin += kMostPieces) {
    const size_t count = std::min(kMostPieces, pieces.size() - begin);
    copy_in_one_call<kMostPieces>(pieces.subspan(begin, count), stream);
  }
}

}  // namespace klotski::cuda
