#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "experts/expected_expert.h"
#include "experts/expert_cache.h"
#include "model/description.h"
#include "schedule/policy.h"

namespace klotski {

// A layer's experts, the most chosen first; by number where the policy knows no more.
std::vector<ExpertId> ranked_experts(const ModelDescription& model, const Policy& policy,
                                     LayerId layer);

// All experts by rank: the first of every layer by ranked_experts(), then the second of every
// layer, and so on.
std::vector<WeightUnit> experts_by_rank(const ModelDescription& model, const Policy& policy);

// The experts that a policy keeps, in the order in which they are brought.
std::vector<ExpertKey> kept_experts(const ModelDescription& model, const Policy& policy);

// A set of experts that is asked often.
class ExpertSet {
 public:
  explicit ExpertSet(const std::vector<ExpertKey>& keys);

  bool empty() const { return empty_; }
  bool has(ExpertKey key) const {
    const auto layer = static_cast<size_t>(key.layer.value);
    const auto expert = static_cast<size_t>(key.expert.value);
    return layer < has_.size() && expert < has_[layer].size() && has_[layer][expert];
  }

 private:
  std::vector<std::vector<bool>> has_;  // by layer, then by expert
  bool empty_;
};

// The units in the slots of every memory, and the leases on them. The state is the one that will
// hold when all tasks given out so far have run. It follows from the schedule alone, never from the
// clock; guesses that were withdrawn before they began are the exception (forget()). Where no tier
// is named the first compute tier is meant.
class Residency {
 public:
  Residency(const ModelDescription& model, const Policy& policy);
  // Eviction rules refer to the caches of memories that lie nearer to the processors.
  Residency(const Residency&) = delete;
  Residency& operator=(const Residency&) = delete;

  struct Leased {
    int32_t slot = 0;
    bool must_load = false;
  };

  // Takes a lease unless there is one already. Nothing where all slots of the kind are under lease.
  [[nodiscard]] std::optional<Leased> lease(const WeightUnit& unit, TierId tier = kComputeTier);
  // Gives a unit that is expected to be used later a slot, without a lease: the eviction rule keeps
  // it there as long as the expectation lasts. The slot to load it into; nothing where the unit is
  // there already or all slots are under lease.
  [[nodiscard]] std::optional<int32_t> bring_ahead(const WeightUnit& unit,
                                                   TierId tier = kComputeTier);
  // The unit was not loaded after all.
  void forget(const WeightUnit& unit, TierId tier);
  // Gives up the lease that was taken last on another unit of the kind.
  void give_way(const WeightUnit& unit, TierId tier = kComputeTier);
  void release(const WeightUnit& unit, TierId tier = kComputeTier);

  // The slot of a memory that is another tier's source, for a unit on its way to that tier. The
  // unit keeps the slot until some others of its kind were asked for, so that these are brought
  // meanwhile.
  Leased pass_through(const WeightUnit& unit, TierId tier);

  // The layer's ranked_experts().
  const std::vector<ExpertId>& ranked(LayerId layer) const {
    return ranked_[static_cast<size_t>(layer.value)];
  }

  // Whether the unit is under lease in the compute tier.
  bool leased(const WeightUnit& unit) const { return leased_slot(unit, kComputeTier).has_value(); }
  // Whether the unit lies in the memory, under lease or not.
  bool resident(const WeightUnit& unit, TierId tier = kComputeTier) const;
  // Whether an expert can come without evicting a kept expert.
  bool room_beside_kept() const;
  // Counts an expert as used by `rows` rows that chose it, wherever it is computed.
  void chosen(const WeightUnit& unit, int64_t rows);
  // Whether an expert has been used often enough to stay in the compute tier if it were brought
  // there.
  bool worth_bringing(const WeightUnit& unit);
  // Experts under lease that had to be loaded.
  int64_t loads_ahead() const;
  // Takes the last `count` expert slots out of use from now on; 0: none. Gives up all leases on
  // experts.
  void lend_slots(int64_t count);
  int64_t lent_slots() const { return lent_; }

  // The slot of a unit under lease.
  int32_t slot(const WeightUnit& unit, TierId tier = kComputeTier) const;
  // Units of the kind and layer under lease, in the order in which they were leased.
  std::vector<WeightUnit> leased_of(UnitKind kind, LayerId layer) const;

  void now_at(LayerId layer);
  // Tells the experts' eviction rules of a layer's probabilities (EvictionRule::expect).
  void expect(const LayerProbabilities& expected);
  // Tells them of a layer's probabilities in the next pass (EvictionRule::expect_in_next_pass).
  void expect_in_next_pass(const LayerProbabilities& expected);
  // Whether a rule of the experts' slots uses them.
  bool uses_expectations() const;
  // Forgets the contents of all slots, which are not known after a pass failed half-way.
  void forget_everything();

  CacheCounters counters(UnitKind kind) const;

 private:
  struct Held {
    WeightUnit unit;
    ExpertLease lease;
    bool loaded = false;  // the unit was loaded for this lease
  };
  struct Shelf {
    std::unique_ptr<ExpertCache> cache;  // none where the model has no such units
    std::deque<Held> held;               // in the order in which the leases were taken
    CacheCounters before;                // counters of caches that were forgotten
  };

  // The slots of one memory.
  struct Shelves {
    TierId tier;
    TierId source;
    std::array<Shelf, kUnitKinds> of_kind;
  };

  void make_caches();
  std::unique_ptr<EvictionRule> rule_for(const Shelves& shelves, UnitKind kind) const;
  std::optional<int64_t> leased_slot(const WeightUnit& unit, TierId tier) const;
  // Calls tell(ExpertCache&) for the experts' cache of every tier that has one.
  template <typename Tell>
  void tell_expert_caches(const Tell& tell);
  const Shelf& shelf(UnitKind kind, TierId tier = kComputeTier) const;
  Shelf& shelf(UnitKind kind, TierId tier = kComputeTier);

  int64_t layers_;
  std::vector<std::vector<ExpertId>> ranked_;  // experts by layer
  ExpertSet kept_;
  Policy policy_;
  // Shelves in the policy's order of memories: each before its source, whose eviction rule asks it.
  // In memories that are sources, `held` are the units asked for last.
  std::vector<Shelves> shelves_;
  int64_t lent_ = 0;
};

}  // namespace klotski
