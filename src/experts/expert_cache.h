#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "experts/eviction.h"

namespace klotski {

class ExpertCache;

// While it lives, the expert stays in its slot. Must not outlive the cache.
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

// Which expert lies in which of N slots of equal size. Book-keeping only: the bytes lie elsewhere,
// and who gets a grant that must load fills the slot. For one thread.
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
  // so a later acquire of the same key is a hit. Nothing where every slot is under lease: release
  // some and ask again. That refusal counts as neither hit nor miss.
  [[nodiscard]] std::optional<Grant> acquire(ExpertKey key);

  // It was used so many times, here or elsewhere: that counts for the rule.
  void used(ExpertKey key, int64_t times) { rule_->used(key, times); }
  // Whether it would stay, were it brought here: a slot is free, or something leaves before it.
  bool would_stay(ExpertKey key);

  // A load failed: the expert is no longer resident and its slot is free once its leases are gone.
  void forget(ExpertKey key);

  // The last so many slots are not to be used from now on, and what they hold is forgotten; 0: all
  // are. No expert is under lease; at least one slot is left.
  void withhold(int64_t slots);

  void now_at(LayerId layer) { rule_->now_at(layer); }

  bool resident(ExpertKey key) const { return slot_of_.count(key) != 0; }
  int64_t slots() const { return static_cast<int64_t>(slots_.size()); }
  // Slots that are not under lease: so many different experts can be acquired from here on.
  int64_t free_or_evictable() const { return slots() - withheld_ - leased_slots_; }
  // Whether a slot is free, or could be taken from an expert of which `may_leave` is true.
  template <typename MayLeave>
  bool room_where(const MayLeave& may_leave) const {
    return !free_.empty() || std::any_of(slots_.begin(), slots_.end(), [&](const Slot& slot) {
      return slot.key && slot.leases == 0 && may_leave(*slot.key);
    });
  }
  const CacheCounters& counters() const { return counters_; }

 private:
  friend class ExpertLease;
  struct Slot {
    std::optional<ExpertKey> key;  // none: free, or forgotten and still under lease
    int64_t leases = 0;
  };

  Grant grant(ExpertKey key, int64_t slot, bool must_load);
  void list_candidates();
  void evict();
  void return_lease(int64_t slot);

  std::unique_ptr<EvictionRule> rule_;
  std::vector<Slot> slots_;
  std::map<ExpertKey, int64_t> slot_of_;
  std::set<int64_t> free_;  // the lowest is taken first
  int64_t leased_slots_ = 0;
  int64_t withheld_ = 0;
  CacheCounters counters_;

  std::vector<ExpertKey> candidates_;  // kept for its memory
};

}  // namespace klotski
