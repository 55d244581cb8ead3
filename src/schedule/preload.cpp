#include "schedule/preload.h"

namespace klotski {

namespace {

// Those that stay come first, into the slots that are never lent.
std::vector<WeightUnit> in_order(const ModelDescription& model, const Policy& policy,
                                 UnitKind kind) {
  if (kind == UnitKind::expert && policy.memory_below()) return experts_by_rank(model, policy);
  return units_of(model, kind);
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
