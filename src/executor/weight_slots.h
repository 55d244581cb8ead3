#pragma once

#include <array>
#include <map>
#include <memory>
#include <optional>

#include "forward/weights.h"
#include "memory/arena.h"
#include "memory/disk_reader.h"
#include "model/unit_layout.h"
#include "planner/policy.h"

namespace klotski {

// The slots of the compute tier and the way from the checkpoint's files into them. Which unit goes
// where is decided elsewhere; that nobody reads a slot while it is written is the schedule's care.
class WeightSlots {
 public:
  // The checkpoint and the layouts must live longer.
  WeightSlots(const Checkpoint& checkpoint, const UnitLayouts& layouts, const Policy& policy,
              Tier& compute_tier, const DiskReaderOptions& options);

  // Bytes of a slot, enough for any unit of the kind.
  uint64_t slot_bytes(UnitKind kind) const { return layouts_.buffer_bytes(kind); }

  // Fills the slot from the files. One thread at a time.
  void load(const WeightUnit& unit, int32_t slot);
  // Moves tensors that the file does not align to where the kernels can read them.
  void settle(const WeightUnit& unit, int32_t slot);

  // Views of a unit that lies in the slot.
  WeightSet weights(const WeightUnit& unit, int32_t slot) const;
  ExpertWeights expert(const WeightUnit& unit, int32_t slot) const;

 private:
  std::span<std::byte> buffer(const WeightUnit& unit, int32_t slot) const;

  const UnitLayouts& layouts_;
  std::vector<DirectFile> files_;  // by shard
  std::array<std::optional<BufferPool>, kUnitKinds> pools_;
  DiskReader reader_;
};

}  // namespace klotski
