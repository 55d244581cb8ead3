#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "device/device.h"
#include "memory/tier.h"

namespace klotski {

// One allocation of a device, taken at once and handed out in pieces, so that nothing can be
// missing later. The pieces are accounted in a tier and live as long as this.
class DeviceMemory {
 public:
  static constexpr uint64_t kAlignment = 4096;  // alignment of every piece, in bytes
  static constexpr uint64_t kMostPieces = 16;   // pieces whose alignment there is room for

  // The device and the tier must live longer.
  DeviceMemory(Device& device, Tier& tier, uint64_t bytes);
  ~DeviceMemory();
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  Device& device() const { return device_; }
  // Takes a piece. Throws does_not_fit where fewer bytes are left.
  std::span<std::byte> take(std::string_view kind, uint64_t bytes);

  // Bytes that a piece of `bytes` takes of the allocation.
  static uint64_t rounded(uint64_t bytes) {
    return (bytes + kAlignment - 1) / kAlignment * kAlignment;
  }

 private:
  Device& device_;
  Tier& tier_;
  uint64_t bytes_;
  uint64_t used_ = 0;
  std::byte* memory_;
  std::vector<Reservation> reservations_;
};

}  // namespace klotski
