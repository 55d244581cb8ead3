#include "memory/device_spill.h"

#include <algorithm>
#include <vector>

#include "base/bytes.h"

namespace klotski {

namespace {

constexpr size_t kPinnedAtOnce = 256 * kMiB;  // other work of the driver waits for it

// What goes across the edge of a piece is copied through a buffer: few pages do.
std::vector<std::span<std::byte>> pieces_of(std::span<std::byte> rest) {
  std::vector<std::span<std::byte>> pieces;
  for (; !rest.empty(); rest = rest.subspan(pieces.back().size())) {
    pieces.push_back(rest.first(std::min(rest.size(), kPinnedAtOnce)));
  }
  return pieces;
}

}  // namespace

DeviceSpill::DeviceSpill(Device& device, Tier& tier, uint64_t bytes)
    : memory_(tier, "KV cache", bytes),
      in_(device.new_queue()),
      out_(device.new_queue()),
      pinning_(device, pieces_of(memory_.bytes())) {}

void DeviceSpill::write(uint64_t offset, std::span<const std::byte> data) {
  out_->to_host(memory_.bytes().data() + offset, data.data(), data.size());
}

void DeviceSpill::read(uint64_t offset, std::span<std::byte> out) const {
  in_->to_device(out.data(), memory_.bytes().data() + offset, out.size());
}

}  // namespace klotski
