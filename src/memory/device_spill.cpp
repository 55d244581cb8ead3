#include "memory/device_spill.h"

#include <vector>

#include "device/copy_pieces.h"

namespace klotski {

namespace {

// Copies that one kernel makes at once, all at one speed: longer pieces go in parts.
constexpr uint64_t kAtOnce = 64;

}  // namespace

DeviceSpill::DeviceSpill(Device& device, Tier& tier, uint64_t bytes)
    : memory_(tier, "KV cache", bytes),
      in_(device.new_queue(CopySize::medium)),
      out_(device.new_queue(CopySize::medium)),
      pinning_(device, pieces_to_pin(memory_.bytes())) {}

void DeviceSpill::write(std::span<const SpillWrite> pieces) {
  std::vector<CopyPiece> copies;
  for (const auto& [offset, from] : pieces) {
    copies.push_back({memory_.bytes().data() + offset, from.data(), from.size()});
  }
  out_->pieces_to_host(even_parts(copies, kAtOnce));
  out_->finish();
}

void DeviceSpill::read(std::span<const SpillRead> pieces) const {
  std::vector<CopyPiece> copies;
  for (const auto& [offset, to] : pieces) {
    copies.push_back({to.data(), memory_.bytes().data() + offset, to.size()});
  }
  in_->pieces_to_device(even_parts(copies, kAtOnce));
  in_->finish();
}

}  // namespace klotski
