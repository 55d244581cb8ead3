#include "schedule/policy.h"

#include <algorithm>
#include <utility>

namespace klotski {

std::string_view precision_name(Precision precision) {
  return precision == Precision::f32 ? "f32" : "bf16";
}

const TierMemory* TierLayout::find(TierId tier) const {
  const auto found = std::find_if(tiers.begin(), tiers.end(),
                                  [&](const TierMemory& memory) { return memory.tier == tier; });
  return found == tiers.end() ? nullptr : &*found;
}

TierMemory* TierLayout::find(TierId tier) {
  return const_cast<TierMemory*>(std::as_const(*this).find(tier));
}

const TierMemory* TierLayout::source_of(TierId tier) const {
  const TierMemory* memory = find(tier);
  return memory ? find(memory->source) : nullptr;
}

void TierLayout::set_host_slots(std::array<int64_t, kUnitKinds> slots) {
  if (!host()) tiers.push_back({.tier = kHostTier});
  compute().source = kHostTier;
  find(kHostTier)->slots = slots;
}

Policy with_strategy(Policy policy, Strategy strategy) {
  policy.strategy = strategy;
  const StrategyProperties& has = properties_of(strategy);
  if (has.one_micro_batch) policy.group.micro_batches = 1;
  if (!has.eviction.empty()) policy.cache.eviction = has.eviction;
  return policy;
}

}  // namespace klotski
