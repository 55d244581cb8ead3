#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "device/cuda_owned_cuda.h"

namespace klotski::cuda {

// Copies between the program's memory and the device's in the order of a stream. Kernels do them,
// through pinned memory that the device sees, so that they do not wait behind weights.
class Staging {
 public:
  explicit Staging(cudaStream_t stream) : stream_(stream) {}

  void upload(std::byte* to, const std::byte* from, uint64_t bytes);    // `from` is free on return
  void download(std::byte* to, const std::byte* from, uint64_t bytes);  // arrived on return
  // Like ProcessorMemory::begin_download.
  const std::byte* begin_download(const std::byte* from, uint64_t bytes);

 private:
  // Pinned memory, and as the device addresses it.
  struct Piece {
    Piece();

    Pinned host;
    std::byte* device = nullptr;
    Event emptied;  // all that was put into it has been read
  };

  void next_piece();

  cudaStream_t stream_;
  Piece sending_[2];       // filled in turns
  Piece landing_;          // the last part of it for downloads that begin early
  int current_ = 0;        // index of the piece of sending_ that is being filled
  uint64_t used_ = 0;      // bytes of it
  uint64_t landings_ = 0;  // downloads that began early
};

}  // namespace klotski::cuda
