#pragma once

#include <memory>

#include "memory/arena.h"
#include "memory/pinning.h"
#include "memory/spill_store.h"

namespace klotski {

// The program's memory as the store that a device's memory spills to.
class DeviceSpill : public SpillStore {
 public:
  // The device and the tier must live longer.
  DeviceSpill(Device& device, Tier& tier, uint64_t bytes);

  void write(std::span<const SpillWrite> pieces) override;
  void read(std::span<const SpillRead> pieces) const override;
  std::byte* memory() const override { return memory_.bytes().data(); }

 private:
  Arena memory_;
  std::unique_ptr<CopyQueue> in_;
  std::unique_ptr<CopyQueue> out_;
  Pinning pinning_;
};

}  // namespace klotski
