#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "experts/expert_cache.h"
#include "model/description.h"
#include "schedule/policy.h"

namespace klotski {

// Which unit lies in which slot of the compute tier, and which are under lease. The state is that
// after the last task given out, not that of the moment: it follows from the schedule alone, never
// from the clock.
class Residency {
 public:
  Residency(const ModelDescription& model, const Policy& policy);

  struct Leased {
    int32_t slot = 0;
    bool must_load = false;
  };

  // Takes a lease unless there is one already. Nothing where all slots of the kind are under lease.
  [[nodiscard]] std::optional<Leased> lease(const WeightUnit& unit);
  // Gives up the lease that was taken last on another unit of the kind.
  void give_way(const WeightUnit& unit);
  void release(const WeightUnit& unit);

  bool leased(const WeightUnit& unit) const { return find(unit) != nullptr; }
  int32_t slot(const WeightUnit& unit) const;  // of a unit under lease
  // Units of the kind and layer under lease, in the order in which they were leased.
  std::vector<WeightUnit> leased_of(UnitKind kind, LayerId layer) const;

  void now_at(LayerId layer);
  // A pass failed half-way: what the slots hold is not known.
  void forget_everything();

  CacheCounters counters(UnitKind kind) const;

 private:
  struct Held {
    WeightUnit unit;
    ExpertLease lease;
  };
  struct Shelf {
    std::unique_ptr<ExpertCache> cache;  // none where the model has no such units
    std::vector<Held> held;              // in the order in which the leases were taken
    CacheCounters before;                // of caches that were forgotten
  };

  const Held* find(const WeightUnit& unit) const;
  Shelf& shelf(UnitKind kind) { return shelves_[index_of(kind)]; }
  const Shelf& shelf(UnitKind kind) const { return shelves_[index_of(kind)]; }

  int64_t layers_;
  Policy policy_;
  std::array<Shelf, kUnitKinds> shelves_;
};

}  // namespace klotski
