#include "memory/device_spill.h"

namespace klotski {

DeviceSpill::DeviceSpill(Device& device, Tier& tier, uint64_t bytes)
    : memory_(tier, "KV cache", bytes),
      in_(device.new_queue(CopySize::medium)),
      out_(device.new_queue(CopySize::medium)),
      pinning_(device, pieces_to_pin(memory_.bytes())) {}

void DeviceSpill::write(uint64_t offset, std::span<const std::byte> data) {
  out_->to_host(memory_.bytes().data() + offset, data.data(), data.size());
}

void DeviceSpill::read(uint64_t offset, std::span<std::byte> out) const {
  in_->to_device(out.data(), memory_.bytes().data() + offset, out.size());
}

}  // namespace klotski
