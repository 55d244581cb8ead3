#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <optional>
#include <vector>

#include "executor/compute_memory.h"
#include "forward/weights.h"
#include "model/unit_source.h"
#include "schedule/policy.h"
#include "schedule/task.h"

namespace klotski {

// The slots of the compute tier, the slots of host memory where the compute tier is a device's, and
// the way of a weight from its source into them. Which unit goes where is decided elsewhere; that
// nobody reads a slot while it is written is the schedule's care.
class WeightSlots {
 public:
  // All given by reference must live longer.
  WeightSlots(UnitSource& source, const UnitLayouts& layouts, const Policy& policy,
              const ComputeMemory& memory, const Processor& ops);

  // Bytes of a slot, enough for any unit of the kind.
  uint64_t slot_bytes(UnitKind kind) const { return pools_[index_of(kind)]->buffer_bytes(); }

  // The last `count` slots of experts as one piece of memory.
  std::span<std::byte> last_expert_slots(int64_t count) const;

  // Fills a host slot from the source. One thread at a time.
  void fetch(const Task& task);
  // Fills a slot of the compute tier, from the source or, where the compute tier is a device's,
  // from host memory. One thread at a time calls load(), begin_load() and finish_load().
  void load(const Task& task);
  // Begins to fill a slot, or the slice of an expert, from host memory; at most two at a time.
  void begin_load(const Task& task);
  // Waits for the oldest load that has begun.
  void finish_load();
  // Lets operations wait for the load of the task's expert, if it has begun and is not over.
  // Another thread may load meanwhile.
  void await_load(const Task& expert) const;
  // Moves tensors that the file does not align to where the kernels can read them.
  void settle(const Task& task);

  // Views of a unit that lies in the slot and is about to be used. One that is used a second time
  // since it was loaded is likely to be used again: its matrices are arranged, once, for faster
  // products.
  WeightSet weights(const WeightUnit& unit, int32_t slot);
  ExpertWeights expert(const WeightUnit& unit, int32_t slot);
  // An expert in a host slot, not arranged, since it may have to go to the device next: its outputs
  // from `from` on.
  ExpertWeights expert_in_host(const WeightUnit& unit, int32_t host_slot, int64_t from) const;
  // The first `outputs` outputs of an expert, whose slice was loaded.
  ExpertWeights expert_slice(const WeightUnit& unit, int64_t outputs) const;

 private:
  struct Slot {
    int64_t load = -1;  // number of the latest load from host memory
    int64_t uses = 0;   // since it was loaded
    std::array<ElementOrder, static_cast<size_t>(Role::count_)> orders{};
  };

  std::span<std::byte> buffer(const WeightUnit& unit, int32_t slot) const;
  void begin_copies(CopyQueue& link, const Task& task) const;
  void begin_slice_copies(CopyQueue& link, const Task& task) const;
  Slot& state(const WeightUnit& unit, int32_t slot) {
    return states_[index_of(unit.kind)][static_cast<size_t>(slot)];
  }
  const Slot& state(const WeightUnit& unit, int32_t slot) const {
    return states_[index_of(unit.kind)][static_cast<size_t>(slot)];
  }
  CopyQueue& link(int64_t load) const { return *links_[static_cast<size_t>(load % 2)]; }

  UnitSource& source_;
  const UnitLayouts& layouts_;
  const Processor& ops_;
  const Processor& cpu_;  // the source may use its threads
  Precision precision_;
  std::array<std::optional<BufferPool>, kUnitKinds> pools_;
  std::array<std::vector<Slot>, kUnitKinds> states_;
  std::optional<BufferPool> slice_;  // its tensors one after the other
  HostSlots* host_slots_;
  std::array<std::unique_ptr<CopyQueue>, 2> links_;  // used in turn
  int64_t begun_ = 0;                                // loads from host memory
  std::atomic<int64_t> finished_{0};                 // loads that are over
  int64_t slice_load_ = -1;                          // the latest
};

}  // namespace klotski
