#include "schedule/preload.h"

#include <algorithm>

namespace klotski {

namespace {

// The first expert of every layer, then the second of every layer: those that stay come first, into
// the slots that are never lent, and no layer has to wait for all of its experts.
std::vector<WeightUnit> in_order(const ModelDescription& model, const Policy& policy,
                                 UnitKind kind) {
  std::vector<WeightUnit> units = units_of(model, kind);
  if (policy.memory_below()) std::stable_sort(units.begin(), units.end(), by_expert);
  return units;
}

}  // namespace

void for_each_preloaded(const ModelDescription& model, const Policy& policy, FragmentBuilder& build,
                        const std::function<void()>& after_each) {
  for (size_t k = 0; k < kUnitKinds; ++k) {
    int64_t above = policy.slots[k];
    // A unit goes to the compute tier through the memory below, and stays there as long as nothing
    // else takes its slot.
    int64_t in_all = above + (policy.memory_below() ? policy.slots_below[k] : 0);
    for (const WeightUnit& unit : in_order(model, policy, static_cast<UnitKind>(k))) {
      if (in_all-- == 0) break;
      if (above-- > 0) {
        build.preload(unit);
      } else {
        build.preload_below(unit);
      }
      after_each();
    }
  }
}

}  // namespace klotski
