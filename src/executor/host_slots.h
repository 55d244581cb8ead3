#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "memory/arena.h"
#include "memory/pinning.h"
#include "model/unit_source.h"

namespace klotski {

// The slots of weights in host memory, pinned in the background, that a device's slots are filled
// from. They remember their units: a later run with equal slots finds them there.
class HostSlots {
 public:
  using Slots = std::array<int64_t, kUnitKinds>;

  // All given by reference must live longer.
  HostSlots(Device& device, Tier& tier, const UnitLayouts& layouts, const Slots& slots);

  // Fills the slot from the source, which may use the threads of `cpu`, unless it holds the unit
  // already. One thread at a time.
  void fetch(UnitSource& source, const UnitLayouts& layouts, const WeightUnit& unit, int32_t slot,
             const Processor& cpu);
  const std::byte* slot(UnitKind kind, int32_t slot) const;

  uint64_t pinned_bytes() const { return pinning_->pinned_bytes(); }
  uint64_t bytes() const { return pinning_->total_bytes(); }

 private:
  std::array<std::optional<BufferPool>, kUnitKinds> pools_;
  std::array<std::vector<std::optional<WeightUnit>>, kUnitKinds> held_;  // units by slot
  std::optional<Pinning> pinning_;  // last: it refers to the pools
};

}  // namespace klotski
