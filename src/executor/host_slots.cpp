#include "executor/host_slots.h"

namespace klotski {

HostSlots::HostSlots(Device& device, Tier& tier, const UnitLayouts& layouts, const Slots& slots) {
  std::vector<std::span<std::byte>> memory;
  for (size_t k = 0; k < kUnitKinds; ++k) {
    if (slots[k] == 0) continue;
    const auto kind = static_cast<UnitKind>(k);
    pools_[k].emplace(tier, std::string(unit_kind_name(kind)) + " weights", slots[k],
                      layouts.buffer_bytes(kind));
    held_[k].resize(static_cast<size_t>(slots[k]));
    const auto pieces = pieces_to_pin(pools_[k]->bytes(), pools_[k]->buffer_bytes());
    memory.insert(memory.end(), pieces.begin(), pieces.end());
  }
  pinning_.emplace(device, std::move(memory));
}

void HostSlots::fetch(UnitSource& source, const UnitLayouts& layouts, const WeightUnit& unit,
                      int32_t slot, const Processor& cpu) {
  const size_t kind = index_of(unit.kind);
  std::optional<WeightUnit>& held = held_[kind][static_cast<size_t>(slot)];
  if (held == unit) return;
  held.reset();  // unknown while it is written, and where that fails
  source.read(unit, layouts.of(unit), pools_[kind]->buffer(slot), cpu);
  settle(layouts.of(unit), pools_[kind]->buffer(slot).data());
  held = unit;
}

const std::byte* HostSlots::slot(UnitKind kind, int32_t slot) const {
  return pools_[index_of(kind)]->buffer(slot).data();
}

}  // namespace klotski
