#include "schedule/residency.h"

#include <algorithm>
#include <span>
#include <utility>

#include "base/error.h"
#include "experts/popularity_predictor.h"

namespace klotski {

namespace {

// The eviction rule for units that every pass uses, and in one order. Experts may follow another.
constexpr std::string_view kCyclicRule = "furthest";

// Units that keep their slots in a memory on the way to a device: one is copied to the device while
// the disk reads the next, and one more evens out the times of both.
constexpr size_t kFetchedAhead = 3;

// A rule's choice among the experts that leave first, or among all where none does. Which experts
// leave first may depend on another cache.
class SomeLeaveFirst : public EvictionRule {
 public:
  explicit SomeLeaveFirst(std::unique_ptr<EvictionRule> rule) : rule_(std::move(rule)) {}

  virtual bool leaves_first(ExpertKey key) const = 0;

  void used(ExpertKey key, int64_t times) override { rule_->used(key, times); }
  void brought_ahead(ExpertKey key) override { rule_->brought_ahead(key); }
  bool worth_replacing(ExpertKey leaving, ExpertKey key) override {
    return rule_->worth_replacing(leaving, key);
  }
  void now_at(LayerId layer) override { rule_->now_at(layer); }
  void expect(LayerId layer, std::span<const double> probability) override {
    rule_->expect(layer, probability);
  }
  void expect_in_next_pass(LayerId layer, std::span<const double> probability) override {
    rule_->expect_in_next_pass(layer, probability);
  }
  bool uses_expectations() const override { return rule_->uses_expectations(); }
  int64_t order_version(LayerId layer) const override { return rule_->order_version(layer); }
  size_t victim(std::span<const ExpertKey> candidates) override {
    first_.clear();
    places_.clear();
    for (size_t i = 0; i < candidates.size(); ++i) {
      if (!leaves_first(candidates[i])) continue;
      first_.push_back(candidates[i]);
      places_.push_back(i);
    }
    return first_.empty() ? rule_->victim(candidates) : places_[rule_->victim(first_)];
  }

 private:
  std::unique_ptr<EvictionRule> rule_;
  std::vector<ExpertKey> first_;  // kept for its memory; so is the following
  std::vector<size_t> places_;
};

// Experts that are kept leave only where all others are under lease.
class KeptLeaveLast : public SomeLeaveFirst {
 public:
  KeptLeaveLast(std::unique_ptr<EvictionRule> rule, const ExpertSet& kept)
      : SomeLeaveFirst(std::move(rule)), kept_(kept) {}
  bool leaves_first(ExpertKey key) const override { return !kept_.has(key); }

 private:
  const ExpertSet& kept_;
};

// Experts that lie in a nearer memory as well are not missed: they leave first, so that all
// memories together hold as much as they can.
class HeldNearerLeaveFirst : public SomeLeaveFirst {
 public:
  HeldNearerLeaveFirst(std::unique_ptr<EvictionRule> rule, std::vector<const ExpertCache*> nearer)
      : SomeLeaveFirst(std::move(rule)), nearer_(std::move(nearer)) {}
  bool leaves_first(ExpertKey key) const override {
    return std::any_of(nearer_.begin(), nearer_.end(),
                       [&](const ExpertCache* cache) { return cache->resident(key); });
  }
  int64_t order_version(LayerId layer) const override {  // a sum of numbers that only grow
    int64_t version = SomeLeaveFirst::order_version(layer);
    for (const ExpertCache* cache : nearer_) version += cache->residency_version(layer);
    return version;
  }

 private:
  std::vector<const ExpertCache*> nearer_;
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

ExpertSet::ExpertSet(const std::vector<ExpertKey>& keys) : empty_(keys.empty()) {
  for (const ExpertKey& key : keys) {
    const auto layer = static_cast<size_t>(key.layer.value);
    const auto expert = static_cast<size_t>(key.expert.value);
    if (layer >= has_.size()) has_.resize(layer + 1);
    if (expert >= has_[layer].size()) has_[layer].resize(expert + 1);
    has_[layer][expert] = true;
  }
}

Residency::Residency(const ModelDescription& model, const Policy& policy)
    : layers_(model.layer_count()), kept_(kept_experts(model, policy)), policy_(policy) {
  for (int64_t i = 0; i < layers_; ++i) {
    ranked_.push_back(ranked_experts(model, policy, LayerId(i)));
  }
  for (const TierMemory& memory : policy_.layout.tiers) {
    shelves_.push_back({.tier = memory.tier, .source = memory.source, .of_kind = {}});
  }
  make_caches();
}

void Residency::forget_everything() {
  for (Shelves& shelves : shelves_) {
    for (Shelf& of_kind : shelves.of_kind) {
      of_kind.held.clear();
      of_kind.before = sum_of(of_kind.before, of_kind.cache.get());
    }
  }
  make_caches();
  if (shelf(UnitKind::expert).cache) shelf(UnitKind::expert).cache->withhold(lent_);
}

void Residency::make_caches() {
  for (size_t i = 0; i < shelves_.size(); ++i) {
    for (size_t kind = 0; kind < kUnitKinds; ++kind) {
      const int64_t slots = policy_.layout.tiers[i].slots[kind];
      if (slots == 0) continue;  // the model has no such units
      shelves_[i].of_kind[kind].cache =
          std::make_unique<ExpertCache>(slots, rule_for(shelves_[i], static_cast<UnitKind>(kind)));
    }
  }
}

std::unique_ptr<EvictionRule> Residency::rule_for(const Shelves& shelves, UnitKind kind) const {
  const bool experts = kind == UnitKind::expert;
  std::unique_ptr<EvictionRule> rule =
      make_eviction_rule(experts ? std::string_view(policy_.cache.eviction) : kCyclicRule, layers_);
  std::vector<const ExpertCache*> nearer;  // caches of tiers that have their weights from here
  for (const Shelves& other : shelves_) {
    const ExpertCache* cache = other.of_kind[index_of(kind)].cache.get();
    if (other.source == shelves.tier && cache) nearer.push_back(cache);
  }
  if (!nearer.empty()) {
    return std::make_unique<HeldNearerLeaveFirst>(std::move(rule), std::move(nearer));
  }
  if (experts && !kept_.empty() && shelves.tier == kComputeTier) {
    return std::make_unique<KeptLeaveLast>(std::move(rule), kept_);
  }
  return rule;
}

const Residency::Shelf& Residency::shelf(UnitKind kind, TierId tier) const {
  for (const Shelves& shelves : shelves_) {
    if (shelves.tier == tier) return shelves.of_kind[index_of(kind)];
  }
  fail(ErrorKind::internal, "there are no slots at {}", tier_name(tier));
}

Residency::Shelf& Residency::shelf(UnitKind kind, TierId tier) {
  return const_cast<Shelf&>(std::as_const(*this).shelf(kind, tier));
}

std::optional<int64_t> Residency::leased_slot(const WeightUnit& unit, TierId tier) const {
  const Shelf& of_kind = shelf(unit.kind, tier);
  if (!of_kind.cache) return std::nullopt;
  return of_kind.cache->leased_slot({unit.layer, unit.expert});
}

std::optional<Residency::Leased> Residency::lease(const WeightUnit& unit, TierId tier) {
  if (const auto slot = leased_slot(unit, tier)) return Leased{static_cast<int32_t>(*slot), false};
  Shelf& of_kind = shelf(unit.kind, tier);
  auto grant = of_kind.cache->acquire({unit.layer, unit.expert});
  if (!grant) return std::nullopt;
  const Leased leased{static_cast<int32_t>(grant->lease.slot()), grant->must_load};
  of_kind.held.push_back({unit, std::move(grant->lease), leased.must_load});
  return leased;
}

std::optional<int32_t> Residency::bring_ahead(const WeightUnit& unit, TierId tier) {
  const auto grant = shelf(unit.kind, tier).cache->acquire_ahead({unit.layer, unit.expert});
  if (!grant || !grant->must_load) return std::nullopt;
  return static_cast<int32_t>(grant->lease.slot());
}

void Residency::forget(const WeightUnit& unit, TierId tier) {
  release(unit, tier);
  shelf(unit.kind, tier).cache->forget({unit.layer, unit.expert});
}

bool Residency::resident(const WeightUnit& unit, TierId tier) const {
  return shelf(unit.kind, tier).cache->resident({unit.layer, unit.expert});
}

// Kept experts leave last: where the next to leave is a kept one, all others are under lease.
bool Residency::room_beside_kept() const {
  if (kept_.empty()) return true;  // as in a model without experts, which has no cache for them
  ExpertCache& cache = *shelf(UnitKind::expert).cache;
  if (cache.has_free_slot()) return true;
  const std::optional<ExpertKey> leaving = cache.next_to_leave();
  return leaving && !kept_.has(*leaving);
}

void Residency::chosen(const WeightUnit& unit, int64_t rows) {
  shelf(unit.kind).cache->used({unit.layer, unit.expert}, rows);
}

bool Residency::worth_bringing(const WeightUnit& unit) {
  return !resident(unit) && room_beside_kept() &&
         shelf(unit.kind).cache->would_stay({unit.layer, unit.expert});
}

int64_t Residency::loads_ahead() const {
  const std::deque<Held>& held = shelf(UnitKind::expert).held;
  return std::count_if(held.begin(), held.end(), [](const Held& one) { return one.loaded; });
}

void Residency::lend_slots(int64_t count) {
  if (count == std::exchange(lent_, count)) return;
  Shelf& experts = shelf(UnitKind::expert);
  if (!experts.cache) return;
  experts.held.clear();
  experts.cache->withhold(count);
}

Residency::Leased Residency::pass_through(const WeightUnit& unit, TierId tier) {
  Shelf& of_kind = shelf(unit.kind, tier);
  const size_t most = std::min(kFetchedAhead, static_cast<size_t>(of_kind.cache->slots()) - 1);
  release(unit, tier);
  while (of_kind.held.size() > most) of_kind.held.pop_front();
  auto grant = of_kind.cache->acquire({unit.layer, unit.expert});
  const Leased leased{static_cast<int32_t>(grant->lease.slot()), grant->must_load};
  of_kind.held.push_back({unit, std::move(grant->lease), leased.must_load});
  return leased;
}

void Residency::give_way(const WeightUnit& unit, TierId tier) {
  std::deque<Held>& held = shelf(unit.kind, tier).held;
  for (size_t i = held.size(); i-- > 0;) {
    if (held[i].unit == unit) continue;
    held.erase(held.begin() + static_cast<std::ptrdiff_t>(i));
    return;
  }
  fail(ErrorKind::internal, "no slot for {}", format_unit(unit));
}

void Residency::release(const WeightUnit& unit, TierId tier) {
  std::deque<Held>& held = shelf(unit.kind, tier).held;  // the unit once, as a rule near the front
  const auto found =
      std::find_if(held.begin(), held.end(), [&](const Held& one) { return one.unit == unit; });
  if (found != held.end()) held.erase(found);
}

int32_t Residency::slot(const WeightUnit& unit, TierId tier) const {
  const auto slot = leased_slot(unit, tier);
  if (!slot) fail(ErrorKind::internal, "{} is used without a lease", format_unit(unit));
  return static_cast<int32_t>(*slot);
}

std::vector<WeightUnit> Residency::leased_of(UnitKind kind, LayerId layer) const {
  std::vector<WeightUnit> units;
  for (const Held& held : shelf(kind).held) {
    if (held.unit.layer == layer) units.push_back(held.unit);
  }
  return units;
}

void Residency::now_at(LayerId layer) {
  for (Shelves& shelves : shelves_) {
    for (Shelf& of_kind : shelves.of_kind) {
      if (of_kind.cache) of_kind.cache->now_at(layer);
    }
  }
}

template <typename Tell>
void Residency::tell_expert_caches(const Tell& tell) {
  for (Shelves& shelves : shelves_) {
    ExpertCache* cache = shelves.of_kind[index_of(UnitKind::expert)].cache.get();
    if (cache) tell(*cache);
  }
}

void Residency::expect(const LayerProbabilities& expected) {
  tell_expert_caches(
      [&](ExpertCache& cache) { cache.expect(expected.layer, expected.probability); });
}

void Residency::expect_in_next_pass(const LayerProbabilities& expected) {
  tell_expert_caches(
      [&](ExpertCache& cache) { cache.expect_in_next_pass(expected.layer, expected.probability); });
}

bool Residency::uses_expectations() const {
  const ExpertCache* cache = shelf(UnitKind::expert).cache.get();
  return cache && cache->uses_expectations();
}

CacheCounters Residency::counters(UnitKind kind) const {
  return sum_of(shelf(kind).before, shelf(kind).cache.get());
}

}  // namespace klotski
