#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "device/device.h"
#include "hardware/profile.h"
#include "kernels/ops.h"
#include "memory/arena.h"
#include "memory/tier.h"

namespace klotski {

// The program's memory, pinned where the system allows it, with random content: pages that nobody
// wrote to would all be one page.
class PinnedArena {
 public:
  // The threads of `cpu` write the content.
  PinnedArena(const Processor& cpu, Device& device, Tier& tier, uint64_t bytes);
  ~PinnedArena();
  PinnedArena(const PinnedArena&) = delete;
  PinnedArena& operator=(const PinnedArena&) = delete;

  std::span<std::byte> bytes() const { return arena_.bytes(); }

 private:
  Device& device_;
  Arena arena_;
  bool pinned_;
};

// Measures the link between a device and the program's memory by copies of several sizes. Takes the
// program's memory from `tier`; `there` is the device's memory.
LinkProfile measure_link(const Processor& cpu, Device& device, Tier& tier,
                         std::span<std::byte> there);

}  // namespace klotski
