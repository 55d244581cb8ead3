#include <cstring>
#include <new>

#include "device/device.h"
#include "kernels/reference/reference_processor.h"

namespace klotski {

namespace {

constexpr std::align_val_t kAlignment{64};  // a cache line

}  // namespace

std::byte* HostMemory::take(uint64_t bytes) {
  return static_cast<std::byte*>(::operator new(bytes, kAlignment));
}

void HostMemory::give_back(std::byte* memory, uint64_t) { ::operator delete(memory, kAlignment); }

void HostMemory::upload(std::byte* to, const void* from, uint64_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}

void HostMemory::download(void* to, const std::byte* from, uint64_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}

void HostMemory::wait_for_copies(const CopyQueue& copies) { copies.published(); }

}  // namespace klotski
