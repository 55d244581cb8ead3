#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "device/copy_kernel_cuda.h"
#include "device/cuda_call_cuda.h"
#include "kernels/cuda/staging_cuda.h"
#include "kernels/ops.h"

namespace klotski::cuda {

namespace {

constexpr uint64_t kPieceBytes = uint64_t{4} << 20;
constexpr uint64_t kLandingBytes =
    ProcessorMemory::kMostLanding + kCopyVector;  // wherever it begins
constexpr uint64_t kEarlyBytes = ProcessorMemory::kMostLandings * kLandingBytes;
static_assert(kEarlyBytes < kPieceBytes);

}  // namespace

Staging::Piece::Piece() : host(new_pinned(kPieceBytes)), emptied(new_event(Waiting::spins)) {
  void* as_seen = nullptr;
  check_cuda(cudaHostGetDevicePointer(&as_seen, host.get(), 0), "cudaHostGetDevicePointer");
  device = static_cast<std::byte*>(as_seen);
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
    copy_by_kernel({to, piece.device + begin, count}, stream_);
    used_ = (begin + count + kCopyVector - 1) / kCopyVector * kCopyVector;
    to += count;
    from += count;
    bytes -= count;
  }
}

void Staging::download(std::byte* to, const std::byte* from, uint64_t bytes) {
  while (bytes > 0) {
    const uint64_t begin = misalignment(from);
    const uint64_t count = std::min(bytes, kPieceBytes - kEarlyBytes - begin);
    copy_by_kernel({landing_.device + begin, from, count}, stream_);
    check_cuda(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
    std::memcpy(to, landing_.host.get() + begin, count);
    to += count;
    from += count;
    bytes -= count;
  }
}

const std::byte* Staging::begin_download(const std::byte* from, uint64_t bytes) {
  if (bytes > ProcessorMemory::kMostLanding) {
    fail(ErrorKind::internal, "a download of {} bytes that begins early: {} at most", bytes,
         ProcessorMemory::kMostLanding);
  }
  const uint64_t early = landings_++ % ProcessorMemory::kMostLandings;
  const uint64_t begin = kPieceBytes - kEarlyBytes + early * kLandingBytes + misalignment(from);
  if (bytes > 0) copy_by_kernel({landing_.device + begin, from, bytes}, stream_);
  return landing_.host.get() + begin;
}

}  // namespace klotski::cuda
