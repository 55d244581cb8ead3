#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <thread>
#include <vector>

#include "device/device.h"

namespace klotski {

// Cuts memory into pieces of about 256 MiB, each of whole units, that are pinned by one call each,
// since other work of the driver waits for such a call. A copy from one piece to the next is
// slower.
std::vector<std::span<std::byte>> pieces_to_pin(std::span<std::byte> memory,
                                                uint64_t unit_bytes = 1);

// Pins memory piece by piece in the background: pinning takes about as long as filling it, and the
// rest of it can be copied meanwhile, only slower. Where the system allows no more, the rest stays
// as it is.
class Pinning {
 public:
  // No copy goes across the edge of a piece. The device and the memory must live longer.
  Pinning(Device& device, std::vector<std::span<std::byte>> pieces);
  ~Pinning();
  Pinning(const Pinning&) = delete;
  Pinning& operator=(const Pinning&) = delete;

  uint64_t total_bytes() const { return total_bytes_; }
  uint64_t pinned_bytes() const { return pinned_bytes_; }
  bool refused() const { return refused_; }
  void wait();  // until all is pinned, or refused

 private:
  void pin_all();

  Device& device_;
  std::vector<std::span<std::byte>> pieces_;
  uint64_t total_bytes_ = 0;
  size_t pinned_pieces_ = 0;
  std::atomic<uint64_t> pinned_bytes_{0};
  std::atomic<bool> refused_{false};
  std::atomic<bool> stop_{false};
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace klotski
