#pragma once

// Owners of streams, events and pinned memory that CUDA makes on the current device.

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>

namespace klotski::cuda {

struct GiveBack {
  void operator()(cudaStream_t stream) const { cudaStreamDestroy(stream); }
  void operator()(cudaEvent_t event) const { cudaEventDestroy(event); }
  void operator()(std::byte* pinned) const { cudaFreeHost(pinned); }
};
using Stream = std::unique_ptr<std::remove_pointer_t<cudaStream_t>, GiveBack>;
using Event = std::unique_ptr<std::remove_pointer_t<cudaEvent_t>, GiveBack>;
using Pinned = std::unique_ptr<std::byte, GiveBack>;

// A stream that waits for no other.
Stream new_stream();

// How a thread waits for an event: ready to go on at once, or asleep so that others compute.
enum class Waiting { spins, sleeps };
Event new_event(Waiting waiting);

// Pinned memory of the program; the device addresses it where it can.
Pinned new_pinned(uint64_t bytes);

}  // namespace klotski::cuda
