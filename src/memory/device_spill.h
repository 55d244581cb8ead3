#pragma once

#include <memory>

#include "memory/arena.h"
#include "memory/pinning.h"
#include "memory/spill_store.h"

namespace klotski {

// The program's memory as the place below a device's.
class DeviceSpill : public SpillStore {
 public:
  // Both must live longer.
  DeviceSpill(Device& device, Tier& tier, uint64_t bytes);

  void write(uint64_t offset, std::span<const std::byte> data) override;
  void read(uint64_t offset, std::span<std::byte> out) const override;
  std::byte* memory() const override { return memory_.bytes().data(); }
  void finish_writes() override { out_->finish(); }
  void finish_reads() const override { in_->finish(); }

 private:
  Arena memory_;
  std::unique_ptr<CopyQueue> in_;
  std::unique_ptr<CopyQueue> out_;
  Pinning pinning_;
};

}  // namespace klotski
