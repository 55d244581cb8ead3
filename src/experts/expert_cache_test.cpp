#include "experts/expert_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "base/error.h"

namespace klotski {
namespace {

ExpertKey key(int64_t layer, int64_t expert) { return {LayerId(layer), ExpertId(expert)}; }

TEST(ExpertCache, GrantsHitsAndEvictions) {
  ExpertCache cache(2, make_eviction_rule("lru", 4));
  auto first = cache.acquire(key(0, 0));
  ASSERT_TRUE(first);
  EXPECT_TRUE(first->must_load);
  EXPECT_EQ(first->lease.slot(), 0);
  auto again = cache.acquire(key(0, 0));
  EXPECT_FALSE(again->must_load);
  EXPECT_EQ(again->lease.slot(), 0);
  auto second = cache.acquire(key(0, 1));
  EXPECT_EQ(second->lease.slot(), 1);
  EXPECT_EQ(cache.free_or_evictable(), 0);
  EXPECT_FALSE(cache.acquire(key(0, 2)));

  first->lease.release();
  first->lease.release();
  EXPECT_FALSE(cache.acquire(key(0, 2))) << "another lease still holds the slot";
  again->lease.release();
  auto third = cache.acquire(key(0, 2));
  ASSERT_TRUE(third);
  EXPECT_TRUE(third->must_load);
  EXPECT_FALSE(cache.resident(key(0, 0)));
  EXPECT_EQ(cache.counters().hits, 1);
  EXPECT_EQ(cache.counters().misses, 3);
  EXPECT_EQ(cache.counters().evictions, 1);
}

// An expert that is brought ahead is there, but nobody has asked for it: neither hit nor miss.
TEST(ExpertCache, WhatIsBroughtAheadIsNoRequest) {
  ExpertCache cache(2, make_eviction_rule("lru", 4));
  cache.acquire(key(0, 0))->lease.release();
  {
    const auto ahead = cache.acquire_ahead(key(1, 1));
    ASSERT_TRUE(ahead);
    EXPECT_TRUE(ahead->must_load);
  }
  EXPECT_FALSE(cache.acquire_ahead(key(1, 1))->must_load);
  EXPECT_EQ(cache.counters().requests(), 1);
  const auto full = cache.acquire(key(0, 2));
  EXPECT_TRUE(cache.resident(key(1, 1))) << "to lru, coming is a use: the older one leaves";
  const auto used = cache.acquire(key(1, 1));
  EXPECT_EQ(cache.counters().hits, 1);
  EXPECT_FALSE(cache.acquire_ahead(key(3, 3))) << "all slots are under lease";
}

// An expert that is used elsewhere gains in popularity, until it would take another's place.
TEST(ExpertCache, WhatIsUsedMoreWouldStay) {
  ExpertCache cache(2, make_eviction_rule("lfu", 1));
  const ExpertKey often{LayerId(0), ExpertId(0)};
  const ExpertKey seldom{LayerId(0), ExpertId(1)};
  const ExpertKey outside{LayerId(0), ExpertId(2)};
  EXPECT_TRUE(cache.would_stay(outside)) << "a slot is free";
  for (int i = 0; i < 5; ++i) cache.acquire(often)->lease.release();
  for (int i = 0; i < 2; ++i) cache.acquire(seldom)->lease.release();
  cache.used(outside, 6);
  EXPECT_FALSE(cache.would_stay(outside)) << "used little more than the one that would leave";
  cache.used(outside, 1);
  EXPECT_TRUE(cache.would_stay(outside));
  const auto grant = cache.acquire(outside);
  EXPECT_FALSE(cache.resident(seldom));
  EXPECT_FALSE(cache.would_stay(seldom)) << "only what is used more could leave for it";
}

// Uses of many rows at once fade no sooner than as many uses of one: otherwise a prompt's first
// layers would look unused at its last.
TEST(ExpertCache, ManyRowsAtOnceFadeNothing) {
  const auto rule = make_eviction_rule("lfu", 2, 8);
  rule->used(key(0, 0), 1000);
  rule->used(key(1, 0), 999);
  const ExpertKey both[] = {key(0, 0), key(1, 0)};
  EXPECT_EQ(rule->victim(both), 1u);
}

TEST(ExpertCache, LeaseMovesWithoutReleasing) {
  ExpertCache cache(1, make_eviction_rule("lru", 1));
  auto grant = cache.acquire(key(0, 0));
  ExpertLease lease = std::move(grant->lease);
  grant.reset();
  EXPECT_EQ(cache.free_or_evictable(), 0);
  EXPECT_EQ(lease.key(), key(0, 0));
  lease = ExpertLease(std::move(lease));
  lease.release();
  EXPECT_EQ(cache.free_or_evictable(), 1);
}

TEST(ExpertCache, ForgottenExpertIsLoadedAgainElsewhere) {
  ExpertCache cache(2, make_eviction_rule("lfu", 1));
  auto failed = cache.acquire(key(0, 0));
  cache.forget(key(0, 0));
  cache.forget(key(0, 5));
  EXPECT_FALSE(cache.resident(key(0, 0)));
  EXPECT_EQ(cache.free_or_evictable(), 1) << "the failed slot is still under lease";
  auto retry = cache.acquire(key(0, 0));
  EXPECT_TRUE(retry->must_load);
  EXPECT_EQ(retry->lease.slot(), 1);
  failed->lease.release();
  EXPECT_TRUE(cache.resident(key(0, 0)));
  auto other = cache.acquire(key(0, 1));
  EXPECT_EQ(other->lease.slot(), 0);
  EXPECT_EQ(cache.counters().evictions, 0);
}

TEST(Eviction, UnknownNamesAreRefused) {
  try {
    make_eviction_rule("random", 4);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    EXPECT_NE(std::string(error.what()).find("lru, lfu, furthest, activation-aware, plec"),
              std::string::npos);
  }
}

TEST(Eviction, OldPopularityFades) {
  const auto rule = make_eviction_rule("lfu", 1, 8);
  for (int i = 0; i < 7; ++i) rule->used(key(0, 0), 1);
  for (int i = 0; i < 17; ++i) rule->used(key(0, 1 + i % 3), 1);
  const std::vector<ExpertKey> candidates = {key(0, 1), key(0, 0), key(0, 2)};
  EXPECT_EQ(rule->victim(candidates), 1u);
}

TEST(Eviction, FurthestGoesRoundTheCycle) {
  const auto rule = make_eviction_rule("furthest", 4);
  const std::vector<ExpertKey> candidates = {key(0, 0), key(1, 0), key(2, 0), key(3, 0)};
  for (const ExpertKey& one : candidates) rule->used(one, 1);
  rule->now_at(LayerId(2));
  EXPECT_EQ(rule->victim(candidates), 1u) << "layer 2 has not run yet, so layer 1 is last";
  rule->used(key(2, 0), 1);
  EXPECT_EQ(rule->victim(candidates), 2u);
  rule->now_at(LayerId(0));
  EXPECT_EQ(rule->victim(candidates), 3u);
}

// The cache in the plainest way.
class NaiveModel {
 public:
  NaiveModel(std::string rule, size_t slots, int64_t layers, int64_t period)
      : rule_(std::move(rule)), slots_(slots), layers_(layers), period_(period) {}

  struct Entry {
    int id;
    ExpertKey key;
    int leases = 1;
    bool valid = true;
  };

  bool full() const {
    return held_.size() == slots_ &&
           std::all_of(held_.begin(), held_.end(),
                       [](const Entry& entry) { return entry.leases > 0; });
  }
  Entry* find(ExpertKey wanted) {
    for (Entry& entry : held_) {
      if (entry.valid && entry.key == wanted) return &entry;
    }
    return nullptr;
  }
  // The expert that leaves for another, if one must.
  std::optional<ExpertKey> make_room() {
    if (held_.size() < slots_) return std::nullopt;
    std::optional<ExpertKey> worst;
    for (const Entry& entry : held_) {
      if (entry.leases == 0 && (!worst || rank(entry.key) < rank(*worst))) worst = entry.key;
    }
    drop(*worst);
    return worst;
  }
  void used(ExpertKey used_key) {
    uses_.push_back(used_key);
    halve_if_due();
    ++frequency_[used_key];
  }
  void now_at(int64_t layer) {
    running_ = layer;
    running_since_ = uses_.size();
  }
  int add(ExpertKey added) {
    held_.push_back({++last_id_, added});
    return last_id_;
  }
  void drop(ExpertKey dropped) {
    held_.erase(std::find_if(held_.begin(), held_.end(),
                             [&](const Entry& e) { return e.valid && e.key == dropped; }));
  }
  void forget(ExpertKey forgotten) {
    Entry* entry = find(forgotten);
    if (!entry) return;
    entry->valid = false;
    if (entry->leases == 0) erase_dead();
  }
  void release(int id) {
    for (Entry& entry : held_) entry.leases -= entry.id == id ? 1 : 0;
    erase_dead();
  }
  int64_t unleased() const {
    const auto leased = std::count_if(held_.begin(), held_.end(),
                                      [](const Entry& entry) { return entry.leases > 0; });
    return static_cast<int64_t>(slots_) - leased;
  }

 private:
  using Rank = std::tuple<int64_t, int64_t, ExpertKey>;
  Rank rank(ExpertKey k) {
    int64_t last = 0;
    for (size_t i = 0; i < uses_.size(); ++i) {
      if (uses_[i] == k) last = static_cast<int64_t>(i) + 1;
    }
    if (rule_ == "lru") return {last, 0, k};
    if (rule_ == "lfu") return {frequency_[k], last, k};
    int64_t ahead = 0;
    while ((running_ + ahead) % layers_ != k.layer.value) ++ahead;
    if (ahead == 0 && last > static_cast<int64_t>(running_since_)) ahead = layers_;
    return {-ahead, frequency_[k], k};
  }
  void halve_if_due() {
    if (uses_.size() % static_cast<size_t>(period_) != 0) return;
    for (auto& entry : frequency_) entry.second /= 2;
  }
  void erase_dead() {
    held_.erase(std::remove_if(held_.begin(), held_.end(),
                               [](const Entry& e) { return !e.valid && e.leases == 0; }),
                held_.end());
  }

  std::string rule_;
  size_t slots_;
  int64_t layers_;
  int64_t period_;
  std::vector<Entry> held_;
  int last_id_ = 0;
  std::vector<ExpertKey> uses_;
  std::map<ExpertKey, int64_t> frequency_;
  int64_t running_ = 0;
  size_t running_since_ = 0;
};

struct Held {
  ExpertLease lease;
  int id;      // id of the model's entry
  bool valid;  // not forgotten since
};

class RandomSequence {
 public:
  RandomSequence(uint32_t seed, const std::string& rule)
      : random_(seed),
        slots_(1 + below(6)),
        layers_(1 + below(4)),
        experts_(1 + below(4)),
        period_(1 + below(12)),
        model_(rule, static_cast<size_t>(slots_), layers_, period_),
        cache_(slots_, make_eviction_rule(rule, layers_, period_)) {}

  void run() {
    for (int i = 0; i < 40 && !testing::Test::HasFatalFailure(); ++i) {
      const int64_t action = below(10);
      if (action < 6) acquire(key(below(layers_), below(experts_)));
      if (action == 6 || action == 7) release();
      if (action == 8) {
        const int64_t layer = below(layers_);
        cache_.now_at(LayerId(layer));
        model_.now_at(layer);
      }
      if (action == 9 && below(3) == 0) forget(key(below(layers_), below(experts_)));
      ASSERT_EQ(cache_.free_or_evictable(), model_.unleased());
    }
    EXPECT_EQ(cache_.counters().hits, counters_.hits);
    EXPECT_EQ(cache_.counters().misses, counters_.misses);
    EXPECT_EQ(cache_.counters().evictions, counters_.evictions);
  }

 private:
  int64_t below(int64_t bound) {
    return static_cast<int64_t>(random_() % static_cast<uint32_t>(bound));
  }

  void acquire(ExpertKey wanted) {
    auto grant = cache_.acquire(wanted);
    NaiveModel::Entry* known = model_.find(wanted);
    if (!known && model_.full()) {
      ASSERT_FALSE(grant);
      return;
    }
    ASSERT_TRUE(grant);
    ASSERT_EQ(grant->must_load, known == nullptr);
    int id = 0;
    if (known) {
      id = known->id;
      ++known->leases;
      ++counters_.hits;
    } else {
      const std::optional<ExpertKey> evicted = model_.make_room();
      ASSERT_FALSE(evicted && cache_.resident(*evicted));
      counters_.evictions += evicted ? 1 : 0;
      ++counters_.misses;
      id = model_.add(wanted);
    }
    model_.used(wanted);
    ASSERT_EQ(grant->lease.key(), wanted);
    ASSERT_GE(grant->lease.slot(), 0);
    ASSERT_LT(grant->lease.slot(), slots_);
    for (const Held& other : held_) {
      const bool same_expert = other.valid && other.lease.key() == wanted;
      ASSERT_EQ(other.lease.slot() == grant->lease.slot(), same_expert);
    }
    held_.push_back({std::move(grant->lease), id, true});
  }

  void release() {
    if (held_.empty()) return;
    const auto chosen = held_.begin() + below(static_cast<int64_t>(held_.size()));
    model_.release(chosen->id);
    held_.erase(chosen);
  }

  void forget(ExpertKey forgotten) {
    cache_.forget(forgotten);
    model_.forget(forgotten);
    ASSERT_FALSE(cache_.resident(forgotten));
    for (Held& held : held_) {
      if (held.lease.key() == forgotten) held.valid = false;
    }
  }

  std::mt19937 random_;
  int64_t slots_;
  int64_t layers_;
  int64_t experts_;
  int64_t period_;
  NaiveModel model_;
  ExpertCache cache_;
  std::vector<Held> held_;
  CacheCounters counters_;
};

class ExpertCacheProperty : public testing::TestWithParam<const char*> {};

TEST_P(ExpertCacheProperty, EqualsTheNaiveModel) {
  for (uint32_t seed = 0; seed < 4000; ++seed) {
    SCOPED_TRACE(seed);
    RandomSequence(seed, GetParam()).run();
    if (HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Rules, ExpertCacheProperty, testing::Values("lru", "lfu", "furthest"));

}  // namespace
}  // namespace klotski
