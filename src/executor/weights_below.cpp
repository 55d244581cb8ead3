#include "executor/weights_below.h"

#include <algorithm>

#include "base/bytes.h"

namespace klotski {

namespace {

constexpr uint64_t kPinnedAtOnce = 256 * kMiB;  // about: other work of the driver waits for it

// Whole slots, several where they are small.
std::vector<std::span<std::byte>> pieces_of(const BufferPool& pool) {
  const uint64_t slots = std::max<uint64_t>(kPinnedAtOnce / pool.buffer_bytes(), 1);
  const size_t bytes = slots * pool.buffer_bytes();
  std::vector<std::span<std::byte>> pieces;
  for (std::span<std::byte> rest = pool.bytes(); !rest.empty();) {
    pieces.push_back(rest.first(std::min(bytes, rest.size())));
    rest = rest.subspan(pieces.back().size());
  }
  return pieces;
}

}  // namespace

WeightsBelow::WeightsBelow(Device& device, Tier& tier, const UnitLayouts& layouts,
                           const Slots& slots) {
  std::vector<std::span<std::byte>> memory;
  for (size_t k = 0; k < kUnitKinds; ++k) {
    if (slots[k] == 0) continue;
    const auto kind = static_cast<UnitKind>(k);
    pools_[k].emplace(tier, std::string(unit_kind_name(kind)) + " weights", slots[k],
                      layouts.buffer_bytes(kind));
    held_[k].resize(static_cast<size_t>(slots[k]));
    for (const std::span<std::byte> piece : pieces_of(*pools_[k])) memory.push_back(piece);
  }
  pinning_.emplace(device, std::move(memory));
}

void WeightsBelow::fetch(UnitSource& source, const UnitLayouts& layouts, const WeightUnit& unit,
                         int32_t slot) {
  const size_t kind = index_of(unit.kind);
  std::optional<WeightUnit>& held = held_[kind][static_cast<size_t>(slot)];
  if (held == unit) return;
  held.reset();  // unknown while it is written, and where that fails
  source.read(unit, layouts.of(unit), pools_[kind]->buffer(slot));
  held = unit;
}

const std::byte* WeightsBelow::slot(UnitKind kind, int32_t slot) const {
  return pools_[index_of(kind)]->buffer(slot).data();
}

}  // namespace klotski
