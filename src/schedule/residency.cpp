#include "schedule/residency.h"

#include <algorithm>
#include <functional>
#include <span>
#include <utility>

#include "base/error.h"
#include "experts/popularity_predictor.h"

namespace klotski {

namespace {

// Units that every pass uses come round in a fixed order, whatever rule experts follow.
constexpr std::string_view kCyclicRule = "furthest";

// Units that keep their place in the memory below while others are asked for: one is copied to the
// device while the disk reads the next, and one more evens out what differs.
constexpr size_t kFetchedAhead = 3;

// A rule's choice among the experts that leave first, or among all where none does.
class SomeLeaveFirst : public EvictionRule {
 public:
  using LeavesFirst = std::function<bool(ExpertKey)>;

  SomeLeaveFirst(std::unique_ptr<EvictionRule> rule, LeavesFirst leaves_first)
      : rule_(std::move(rule)), leaves_first_(std::move(leaves_first)) {}

  void used(ExpertKey key, int64_t times) override { rule_->used(key, times); }
  bool worth_replacing(ExpertKey leaving, ExpertKey key) override {
    return rule_->worth_replacing(leaving, key);
  }
  void now_at(LayerId layer) override { rule_->now_at(layer); }
  size_t victim(std::span<const ExpertKey> candidates) override {
    std::vector<ExpertKey> first;
    std::vector<size_t> places;
    for (size_t i = 0; i < candidates.size(); ++i) {
      if (!leaves_first_(candidates[i])) continue;
      first.push_back(candidates[i]);
      places.push_back(i);
    }
    return first.empty() ? rule_->victim(candidates) : places[rule_->victim(first)];
  }

 private:
  std::unique_ptr<EvictionRule> rule_;
  LeavesFirst leaves_first_;
};

CacheCounters sum_of(CacheCounters sum, const ExpertCache* cache) {
  if (!cache) return sum;
  sum.hits += cache->counters().hits;
  sum.misses += cache->counters().misses;
  sum.evictions += cache->counters().evictions;
  return sum;
}

}  // namespace

std::vector<ExpertId> ranked_experts(const ModelDescription& model, const Policy& policy,
                                     LayerId layer) {
  if (!policy.cache.expert_shares.empty()) {
    return by_share(policy.cache.expert_shares[static_cast<size_t>(layer.value)]);
  }
  return by_share(
      std::vector<double>(static_cast<size_t>(model.layer(layer).feed_forward.experts), 1.0));
}

std::vector<WeightUnit> experts_by_rank(const ModelDescription& model, const Policy& policy) {
  std::vector<std::pair<int64_t, WeightUnit>> ranked;
  for (int64_t i = 0; i < model.layer_count(); ++i) {
    int64_t rank = 0;
    for (const ExpertId expert : ranked_experts(model, policy, LayerId(i))) {
      const WeightUnit unit = expert_unit(model, LayerId(i), expert);
      if (unit.kind == UnitKind::expert) ranked.emplace_back(rank++, unit);
    }
  }
  std::stable_sort(ranked.begin(), ranked.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<WeightUnit> units;
  for (const auto& [rank, unit] : ranked) units.push_back(unit);
  return units;
}

std::vector<ExpertKey> kept_experts(const ModelDescription& model, const Policy& policy) {
  std::vector<ExpertKey> kept;
  for (const WeightUnit& unit : experts_by_rank(model, policy)) {
    if (std::ssize(kept) == policy.cache.kept_experts) break;
    kept.push_back({unit.layer, unit.expert});
  }
  return kept;
}

Residency::Residency(const ModelDescription& model, const Policy& policy)
    : layers_(model.layer_count()), kept_(kept_experts(model, policy)), policy_(policy) {
  std::sort(kept_.begin(), kept_.end());
  for (int64_t i = 0; i < layers_; ++i) {
    ranked_.push_back(ranked_experts(model, policy, LayerId(i)));
  }
  make_shelves();
}

void Residency::forget_everything() {
  for (size_t kind = 0; kind < kUnitKinds; ++kind) {
    for (Shelf* of_kind : {&shelves_[kind], &below_[kind]}) {
      of_kind->held.clear();
      of_kind->before = sum_of(of_kind->before, of_kind->cache.get());
    }
  }
  make_shelves();
  if (shelf(UnitKind::expert).cache) shelf(UnitKind::expert).cache->withhold(lent_);
}

void Residency::make_shelves() {
  for (size_t kind = 0; kind < kUnitKinds; ++kind) {
    if (policy_.layout.slots[kind] == 0) continue;  // the model has no such units
    const std::string_view rule =
        kind == index_of(UnitKind::expert) ? std::string_view(policy_.cache.eviction) : kCyclicRule;
    below_[kind].cache.reset();  // before what it refers to
    std::unique_ptr<EvictionRule> leaves_first = make_eviction_rule(rule, layers_);
    if (kind == index_of(UnitKind::expert) && !kept_.empty()) {
      // Those that are kept leave only where all others are under lease.
      leaves_first = std::make_unique<SomeLeaveFirst>(std::move(leaves_first),
                                                      [this](ExpertKey key) { return !kept(key); });
    }
    shelves_[kind].cache =
        std::make_unique<ExpertCache>(policy_.layout.slots[kind], std::move(leaves_first));
    if (policy_.layout.slots_below[kind] == 0) continue;
    // What lies above as well is not missed: it leaves first, so that both memories together hold
    // as much as they can.
    const ExpertCache& above = *shelves_[kind].cache;
    below_[kind].cache = std::make_unique<ExpertCache>(
        policy_.layout.slots_below[kind],
        std::make_unique<SomeLeaveFirst>(make_eviction_rule(rule, layers_),
                                         [&above](ExpertKey key) { return above.resident(key); }));
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
  of_kind.held.push_back({unit, std::move(grant->lease), leased.must_load});
  return leased;
}

bool Residency::resident(const WeightUnit& unit) const {
  return shelf(unit.kind).cache->resident({unit.layer, unit.expert});
}

bool Residency::kept(ExpertKey key) const {
  return std::binary_search(kept_.begin(), kept_.end(), key);
}

bool Residency::room_beside_kept() const {
  return kept_.empty() ||
         shelf(UnitKind::expert).cache->room_where([&](ExpertKey key) { return !kept(key); });
}

void Residency::chosen(const WeightUnit& unit, int64_t rows) {
  shelf(unit.kind).cache->used({unit.layer, unit.expert}, rows);
}

bool Residency::worth_bringing(const WeightUnit& unit) {
  return !resident(unit) && shelf(unit.kind).cache->would_stay({unit.layer, unit.expert});
}

int64_t Residency::loads_ahead() const {
  const std::vector<Held>& held = shelf(UnitKind::expert).held;
  return std::count_if(held.begin(), held.end(), [](const Held& one) { return one.loaded; });
}

void Residency::lend_slots(int64_t count) {
  if (count == std::exchange(lent_, count)) return;
  Shelf& experts = shelf(UnitKind::expert);
  if (!experts.cache) return;
  experts.held.clear();
  experts.cache->withhold(count);
}

Residency::Leased Residency::below(const WeightUnit& unit) {
  Shelf& of_kind = below_[index_of(unit.kind)];
  const size_t most = std::min(kFetchedAhead, static_cast<size_t>(of_kind.cache->slots()) - 1);
  std::erase_if(of_kind.held, [&](const Held& held) { return held.unit == unit; });
  while (of_kind.held.size() > most) of_kind.held.erase(of_kind.held.begin());
  auto grant = of_kind.cache->acquire({unit.layer, unit.expert});
  const Leased leased{static_cast<int32_t>(grant->lease.slot()), grant->must_load};
  of_kind.held.push_back({unit, std::move(grant->lease), leased.must_load});
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
  for (auto* shelves : {&shelves_, &below_}) {
    for (Shelf& of_kind : *shelves) {
      if (of_kind.cache) of_kind.cache->now_at(layer);
    }
  }
}

CacheCounters Residency::counters(UnitKind kind) const {
  return sum_of(shelf(kind).before, shelf(kind).cache.get());
}

}  // namespace klotski
