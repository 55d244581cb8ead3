#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "experts/eviction.h"

namespace klotski {

class ExpertCache;

// A lease on an expert, which stays in its slot while the lease lives. Must not outlive the cache.
class ExpertLease {
 public:
  ExpertLease(ExpertLease&& other) noexcept;
  ExpertLease& operator=(ExpertLease&& other) noexcept;
  ExpertLease(const ExpertLease&) = delete;
  ExpertLease& operator=(const ExpertLease&) = delete;
  ~ExpertLease() { release(); }

  ExpertKey key() const { return key_; }
  int64_t slot() const { return slot_; }
  // Gives the slot back early; a second call does nothing.
  void release();

 private:
  friend class ExpertCache;
  ExpertLease(ExpertCache* cache, ExpertKey key, int64_t slot)
      : cache_(cache), key_(key), slot_(slot) {}

  ExpertCache* cache_;  // null once released
  ExpertKey key_;
  int64_t slot_;
};

struct CacheCounters {
  int64_t hits = 0;
  int64_t misses = 0;  // grants that must load
  int64_t evictions = 0;

  CacheCounters operator-(const CacheCounters& before) const {
    return {hits - before.hits, misses - before.misses, evictions - before.evictions};
  }
  int64_t requests() const { return hits + misses; }
  double hit_share() const {  // 0 without a request
    return requests() == 0 ? 0.0 : static_cast<double>(hits) / static_cast<double>(requests());
  }
};

// A table of the experts in N slots of equal size. Book-keeping only: the bytes lie elsewhere, and
// whoever gets a grant that must load fills the slot. For one thread.
class ExpertCache {
 public:
  ExpertCache(int64_t slots, std::unique_ptr<EvictionRule> rule);
  ~ExpertCache();
  ExpertCache(const ExpertCache&) = delete;
  ExpertCache& operator=(const ExpertCache&) = delete;

  struct Grant {
    ExpertLease lease;
    bool must_load;  // the slot does not hold the expert's bytes yet
  };

  // A lease on the expert, which counts as resident from now on: loads are ordered by the schedule,
  // so a later acquire of this key is a hit. Nothing where every slot is under lease: release some
  // and ask again. That refusal counts as neither hit nor miss.
  [[nodiscard]] std::optional<Grant> acquire(ExpertKey key);

  // Like acquire(), for an expert that is expected to be used later: counts neither as a request
  // nor, where the rule tells the two apart, as a use.
  [[nodiscard]] std::optional<Grant> acquire_ahead(ExpertKey key);

  // Tells the rule that the expert was used `times` times, here or elsewhere.
  void used(ExpertKey key, int64_t times) { rule_->used(key, times); }
  // Whether it would stay, were it brought here: a slot is free, or something leaves before it.
  bool would_stay(ExpertKey key);

  // A load failed: the expert is no longer resident and its slot is free once its leases are gone.
  void forget(ExpertKey key);

  // Takes the last `slots` slots out of use and forgets the experts in them; 0: all are in use. No
  // expert is under lease; at least one slot is left.
  void withhold(int64_t slots);

  void now_at(LayerId layer) { rule_->now_at(layer); }
  // See EvictionRule::expect() and uses_expectations().
  void expect(LayerId layer, std::span<const double> probability) {
    rule_->expect(layer, probability);
  }
  void expect_in_next_pass(LayerId layer, std::span<const double> probability) {
    rule_->expect_in_next_pass(layer, probability);
  }
  bool uses_expectations() const { return rule_->uses_expectations(); }

  bool resident(ExpertKey key) const { return slot_of(key) != kNoSlot; }
  // The slot of an expert under lease; nothing where it is not resident or not under lease.
  std::optional<int64_t> leased_slot(ExpertKey key) const;
  // A number that changes whenever an expert of the layer becomes resident or ceases to be.
  int64_t residency_version(LayerId layer) const;
  int64_t slots() const { return static_cast<int64_t>(slots_.size()); }
  // Slots that are not under lease: the number of different experts that can be acquired from here
  // on.
  int64_t free_or_evictable() const { return slots() - withheld_ - leased_slots_; }
  bool has_free_slot() const { return !free_.empty(); }
  // The expert that would leave for another now, were no slot free; none where all are under lease.
  std::optional<ExpertKey> next_to_leave();
  const CacheCounters& counters() const { return counters_; }

 private:
  friend class ExpertLease;
  struct Slot {
    std::optional<ExpertKey> key;  // none: free, or forgotten and still under lease
    int64_t leases = 0;
  };

  // State of the experts of a layer. The expert that leaves first is found anew only after one of
  // the layer was leased, given back or used; other layers are not looked at.
  struct LayerState {
    std::vector<int32_t> slot_of;      // by expert; kNoSlot: not resident
    int64_t residency_version = 0;     // grows as `slot_of` changes
    std::vector<ExpertKey> evictable;  // resident, not under lease; ascending
    int64_t known_version = -1;        // the rule's version that `leaves_first` follows; -1: none
    ExpertKey leaves_first{};          // the first of the evictable experts to leave
  };
  static constexpr int32_t kNoSlot = -1;

  struct Found {
    int64_t slot;
    bool must_load;
  };
  std::optional<Found> find_slot(ExpertKey key);
  Grant grant(ExpertKey key, const Found& found);
  int32_t slot_of(ExpertKey key) const;
  LayerState& layer_of(ExpertKey key);
  void set_slot(ExpertKey key, int32_t slot);
  void add_evictable(ExpertKey key);
  void remove_evictable(ExpertKey key);
  ExpertKey leaves_first(LayerState& layer, LayerId id);
  void evict();
  void add_free(int64_t slot);
  void remove_free(int64_t slot);
  void return_lease(int64_t slot);

  std::unique_ptr<EvictionRule> rule_;
  std::vector<Slot> slots_;
  std::vector<LayerState> layers_;  // layers that were asked for so far
  std::vector<int64_t> free_;       // slots, descending: the lowest is taken first, from the end
  int64_t leased_slots_ = 0;
  int64_t withheld_ = 0;
  CacheCounters counters_;

  std::vector<ExpertKey> of_layers_;  // kept for its memory
};

}  // namespace klotski
