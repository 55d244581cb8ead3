#include "schedule/preload.h"

namespace klotski {

void for_each_preloaded(const ModelDescription& model, const Policy& policy, FragmentBuilder& build,
                        const std::function<void()>& after_each) {
  for (size_t k = 0; k < kUnitKinds; ++k) {
    const auto kind = static_cast<UnitKind>(k);
    const std::vector<WeightUnit> units = units_of(model, kind);
    const int64_t below = policy.layout.memory_below() ? policy.layout.slots_below[k] : 0;
    // As they are numbered, whatever goes up: a later run finds each in the same slot.
    const bool all_below = below >= std::ssize(units);
    if (all_below) {
      for (const WeightUnit& unit : units) {
        build.preload_below(unit);
        after_each();
      }
    }
    // Those that stay come first, into the slots that are never lent. A unit goes to the compute
    // tier through the memory below, and stays there as long as nothing else takes its slot.
    int64_t above = policy.layout.slots[k];
    int64_t in_all = above + (all_below ? 0 : below);
    const bool by_rank = kind == UnitKind::expert && policy.layout.memory_below();
    for (const WeightUnit& unit : by_rank ? experts_by_rank(model, policy) : units) {
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
