#include "schedule/residency.h"

#include <algorithm>

#include "base/error.h"

namespace klotski {

namespace {

// Units that every pass uses come round in a fixed order, whatever rule experts follow.
constexpr std::string_view kCyclicRule = "furthest";

}  // namespace

Residency::Residency(const ModelDescription& model, const Policy& policy)
    : layers_(model.layer_count()), policy_(policy) {
  forget_everything();
}

void Residency::forget_everything() {
  for (size_t kind = 0; kind < kUnitKinds; ++kind) {
    shelves_[kind].held.clear();
    const std::string_view rule =
        kind == index_of(UnitKind::expert) ? std::string_view(policy_.eviction) : kCyclicRule;
    shelves_[kind].before = counters(static_cast<UnitKind>(kind));
    if (policy_.slots[kind] == 0) continue;  // the model has no such units
    shelves_[kind].cache =
        std::make_unique<ExpertCache>(policy_.slots[kind], make_eviction_rule(rule, layers_));
  }
}

const Residency::Held* Residency::find(const WeightUnit& unit) const {
  for (const Held& held : shelf(unit.kind).held) {
    if (held.unit == unit) return &held;
  }
  return nullptr;
}

std::optional<Residency::Leased> Residency::lease(const WeightUnit& unit) {
  if (const Held* held = find(unit)) {
    return Leased{static_cast<int32_t>(held->lease.slot()), false};
  }
  Shelf& of_kind = shelf(unit.kind);
  auto grant = of_kind.cache->acquire({unit.layer, unit.expert});
  if (!grant) return std::nullopt;
  const Leased leased{static_cast<int32_t>(grant->lease.slot()), grant->must_load};
  of_kind.held.push_back({unit, std::move(grant->lease)});
  return leased;
}

void Residency::give_way(const WeightUnit& unit) {
  std::vector<Held>& held = shelf(unit.kind).held;
  for (size_t i = held.size(); i-- > 0;) {
    if (held[i].unit == unit) continue;
    held.erase(held.begin() + static_cast<std::ptrdiff_t>(i));
    return;
  }
  fail(ErrorKind::internal, "no slot for {}", format_unit(unit));
}

void Residency::release(const WeightUnit& unit) {
  std::erase_if(shelf(unit.kind).held, [&](const Held& held) { return held.unit == unit; });
}

int32_t Residency::slot(const WeightUnit& unit) const {
  const Held* held = find(unit);
  if (!held) fail(ErrorKind::internal, "{} is used without a lease", format_unit(unit));
  return static_cast<int32_t>(held->lease.slot());
}

std::vector<WeightUnit> Residency::leased_of(UnitKind kind, LayerId layer) const {
  std::vector<WeightUnit> units;
  for (const Held& held : shelf(kind).held) {
    if (held.unit.layer == layer) units.push_back(held.unit);
  }
  return units;
}

void Residency::now_at(LayerId layer) {
  for (Shelf& of_kind : shelves_) {
    if (of_kind.cache) of_kind.cache->now_at(layer);
  }
}

CacheCounters Residency::counters(UnitKind kind) const {
  CacheCounters sum = shelf(kind).before;
  if (!shelf(kind).cache) return sum;
  const CacheCounters& now = shelf(kind).cache->counters();
  sum.hits += now.hits;
  sum.misses += now.misses;
  sum.evictions += now.evictions;
  return sum;
}

}  // namespace klotski
