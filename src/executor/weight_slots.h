#pragma once

#include <array>
#include <map>
#include <memory>
#include <optional>

#include "forward/weights.h"
#include "memory/arena.h"
#include "memory/disk_reader.h"
#include "model/unit_layout.h"
#include "schedule/policy.h"

namespace klotski {

// The slots of the compute tier and the way from the checkpoint's files into them. Which unit goes
// where is decided elsewhere; that nobody reads a slot while it is written is the schedule's care.
class WeightSlots {
 public:
  // The checkpoint and the layouts must live longer.
  WeightSlots(const Checkpoint& checkpoint, const UnitLayouts& layouts, const Policy& policy,
              Tier& compute_tier, const Ops& ops, const DiskReaderOptions& options);

  // Bytes of a slot, enough for any unit of the kind.
  uint64_t slot_bytes(UnitKind kind) const { return layouts_.buffer_bytes(kind); }

  // Fills the slot from the files. One thread at a time.
  void load(const WeightUnit& unit, int32_t slot);
  // Moves tensors that the file does not align to where the kernels can read them.
  void settle(const WeightUnit& unit, int32_t slot);

  // Views of a unit that lies in the slot and is about to be used. One that is used a second time
  // since it was loaded is likely to be used again: its matrices are arranged, once, for faster
  // products.
  WeightSet weights(const WeightUnit& unit, int32_t slot);
  ExpertWeights expert(const WeightUnit& unit, int32_t slot);

 private:
  struct Slot {
    int64_t uses = 0;  // since it was loaded
    std::array<ElementOrder, static_cast<size_t>(Role::count_)> orders{};
  };

  std::span<std::byte> buffer(const WeightUnit& unit, int32_t slot) const;
  Slot& state(const WeightUnit& unit, int32_t slot) {
    return states_[index_of(unit.kind)][static_cast<size_t>(slot)];
  }

  const UnitLayouts& layouts_;
  std::vector<DirectFile> files_;  // by shard
  std::array<std::optional<BufferPool>, kUnitKinds> pools_;
  std::array<std::vector<Slot>, kUnitKinds> states_;
  const Ops& ops_;
  Precision precision_;
  DiskReader reader_;
};

}  // namespace klotski
