#include "memory/device_memory.h"

#include <algorithm>

#include "base/bytes.h"
#include "base/error.h"

namespace klotski {

DeviceMemory::DeviceMemory(Device& device, Tier& tier, uint64_t bytes)
    : device_(device),
      tier_(tier),
      bytes_(bytes + kMostPieces * kAlignment),
      memory_(device.allocate(bytes_)) {}

DeviceMemory::~DeviceMemory() { device_.release(memory_); }

std::span<std::byte> DeviceMemory::take(std::string_view kind, uint64_t bytes) {
  if (bytes > bytes_ - used_) {
    fail(ErrorKind::does_not_fit, "{}: {} for {} do not fit: {} of {} are in use", tier_.name(),
         format_bytes(bytes), kind, format_bytes(used_), format_bytes(bytes_));
  }
  reservations_.push_back(tier_.reserve(kind, bytes));
  const std::span<std::byte> piece(memory_ + used_, static_cast<size_t>(bytes));
  used_ = std::min(used_ + rounded(bytes), bytes_);
  return piece;
}

}  // namespace klotski
