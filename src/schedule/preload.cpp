#include "schedule/preload.h"

namespace klotski {

namespace {

// Whether a memory that is the source of others holds every unit of a kind: each unit then lies in
// the slot of its number, whatever goes to the device, and a later run finds it there.
bool holds_all(const TierMemory& memory, UnitKind kind, const std::vector<WeightUnit>& units) {
  return memory.tier.kind != TierKind::compute && memory.slots[index_of(kind)] >= std::ssize(units);
}

}  // namespace

void for_each_preloaded(const ModelDescription& model, const Policy& policy, FragmentBuilder& build,
                        const std::function<void()>& after_each) {
  const TierLayout& layout = policy.layout;
  for (size_t k = 0; k < kUnitKinds; ++k) {
    const auto kind = static_cast<UnitKind>(k);
    const std::vector<WeightUnit> units = units_of(model, kind);
    const auto put = [&](const WeightUnit& unit, TierId tier) {
      build.preload(unit, tier);
      after_each();
    };
    for (auto tier = layout.tiers.rbegin(); tier != layout.tiers.rend(); ++tier) {
      const TierMemory& memory = *tier;
      if (!holds_all(memory, kind, units)) continue;
      for (const WeightUnit& unit : units) put(unit, memory.tier);
    }
    // Experts that stay come first, into the slots that are never lent. A unit goes to a compute
    // tier through the memories on its way, and stays in each as long as nothing else takes its
    // slot.
    const bool by_rank = kind == UnitKind::expert && layout.source_of(kComputeTier);
    const std::vector<WeightUnit> ordered = by_rank ? experts_by_rank(model, policy) : units;
    auto next = ordered.begin();
    for (const TierMemory& memory : layout.tiers) {
      if (holds_all(memory, kind, units)) continue;
      for (int64_t slot = 0; slot < memory.slots[k] && next != ordered.end(); ++slot) {
        put(*next++, memory.tier);
      }
    }
  }
}

}  // namespace klotski
