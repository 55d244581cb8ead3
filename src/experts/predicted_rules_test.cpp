// The eviction rules that are told of predictions.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "experts/expert_cache.h"
#include "experts/pass_expectations.h"

namespace klotski {
namespace {

ExpertKey rule_key(int64_t layer, int64_t expert) { return {LayerId(layer), ExpertId(expert)}; }

// The order in which a rule gives up experts.
std::vector<ExpertKey> leaving(EvictionRule& rule, std::vector<ExpertKey> resident) {
  std::vector<ExpertKey> order;
  while (!resident.empty()) {
    const size_t victim = rule.victim(resident);
    order.push_back(resident[victim]);
    resident.erase(resident.begin() + static_cast<std::ptrdiff_t>(victim));
  }
  return order;
}

TEST(PassExpectations, FollowThePass) {
  PassExpectations pass(4);
  pass.now_at(LayerId(0));
  EXPECT_EQ(pass.pass(), 1);
  pass.expect(LayerId(2), std::vector<double>{0.9, 0.1, 0.8, 0.2});
  pass.now_at(LayerId(1));
  EXPECT_EQ(pass.pass(), 1);
  EXPECT_EQ(pass.ahead(LayerId(2)), 1);
  EXPECT_EQ(pass.ahead(LayerId(0)), -1);
  EXPECT_TRUE(pass.told(LayerId(2)));
  EXPECT_FALSE(pass.told(LayerId(3)));
  // The probabilities sum to 2: the two likeliest are predicted active.
  EXPECT_TRUE(pass.predicted_active(rule_key(2, 0)));
  EXPECT_TRUE(pass.predicted_active(rule_key(2, 2)));
  EXPECT_FALSE(pass.predicted_active(rule_key(2, 3)));
  pass.now_at(LayerId(2));
  pass.used(rule_key(2, 0));
  EXPECT_EQ(pass.probability(rule_key(2, 0)), 0.0) << "it is not needed again in this pass";
  EXPECT_TRUE(pass.used_in_this_pass(rule_key(2, 0)));
  pass.now_at(LayerId(3));
  EXPECT_FALSE(pass.told(LayerId(2))) << "the layer is over";
  pass.now_at(LayerId(0));
  EXPECT_EQ(pass.pass(), 2);
  EXPECT_FALSE(pass.used_in_this_pass(rule_key(2, 0)));
}

// Four layers. Expert 0 of every layer was used in both passes, expert 1 in the first alone: p = 1
// and about 1/2. At layer 1 in the second pass: layers 2, 3, 0, 1 run next, in 1, 2, 3 and 4
// layers.
TEST(ActivationAware, ProbabilityAndDistanceDecide) {
  const auto rule = make_eviction_rule("activation-aware", 4);
  for (int pass = 0; pass < 2; ++pass) {
    for (int64_t layer = 0; layer < 4; ++layer) {
      if (pass == 1 && layer == 2) break;
      rule->now_at(LayerId(layer));
      rule->used(rule_key(layer, 0), 1);
      if (pass == 0) rule->used(rule_key(layer, 1), 1);
    }
  }
  EXPECT_EQ(
      leaving(*rule, {rule_key(0, 0), rule_key(1, 0), rule_key(0, 1), rule_key(1, 1)}),
      (std::vector<ExpertKey>{rule_key(1, 1), rule_key(0, 1), rule_key(1, 0), rule_key(0, 0)}))
      << "the less used first, of equals the one used later";
  // p is 1/2 in layers 2 and 3, as their experts were used in one of two passes; q says otherwise.
  rule->expect(LayerId(2), std::vector<double>{0.0, 0.9});
  rule->expect(LayerId(3), std::vector<double>{0.9, 0.9});
  EXPECT_EQ(leaving(*rule, {rule_key(2, 0), rule_key(2, 1), rule_key(3, 0)}),
            (std::vector<ExpertKey>{rule_key(2, 0), rule_key(3, 0), rule_key(2, 1)}));
}

// Both experts were used in every pass; the sequence at hand is not expected to use expert 1 again:
// the mean of 1 and 0 is less than that of 1 and 0.2.
TEST(ActivationAware, TheSequencesOwnProbabilityCountsForTheNextPass) {
  const auto rule = make_eviction_rule("activation-aware", 1);
  for (int pass = 0; pass < 3; ++pass) {
    rule->now_at(LayerId(0));
    rule->used(rule_key(0, 0), 1);
    rule->used(rule_key(0, 1), 1);
  }
  const std::vector<ExpertKey> both = {rule_key(0, 1), rule_key(0, 0)};
  EXPECT_EQ(rule->victim(both), 1u) << "ties to the lower key";
  rule->expect_in_next_pass(LayerId(0), std::vector<double>{0.2, 0.0});
  EXPECT_EQ(rule->victim(both), 0u);
}

TEST(ActivationAware, WhatTheGatesChoseStaysUntilItIsUsed) {
  const auto rule = make_eviction_rule("activation-aware", 2);
  for (int pass = 0; pass < 9; ++pass) {
    rule->now_at(LayerId(0));
    rule->now_at(LayerId(1));
    rule->used(rule_key(1, 0), 1);
  }
  rule->now_at(LayerId(0));
  rule->expect(LayerId(0), std::vector<double>{1.0, 0.0});
  const std::vector<ExpertKey> both = {rule_key(0, 0), rule_key(1, 0)};
  EXPECT_EQ(rule->victim(both), 1u) << "expert 0 of layer 0 is about to be used";
  rule->used(rule_key(0, 0), 1);
  EXPECT_EQ(rule->victim(both), 0u);
}

// Decoding uses the same two experts of each of 3 layers. A prompt then uses all 8 of every layer.
// With slots for a quarter, lru has lost the two when decoding goes on; they must be there.
TEST(ActivationAware, APromptDoesNotFlushWhatDecodingNeeds) {
  const auto decode = [](ExpertCache& cache) {
    for (int64_t layer = 0; layer < 3; ++layer) {
      cache.now_at(LayerId(layer));
      for (const int64_t expert : {2, 5}) cache.acquire(rule_key(layer, expert))->lease.release();
    }
  };
  std::map<std::string, int64_t> hits;
  for (const std::string rule : {"lru", "activation-aware"}) {
    ExpertCache cache(7, make_eviction_rule(rule, 3));
    for (int pass = 0; pass < 20; ++pass) decode(cache);
    for (int64_t layer = 0; layer < 3; ++layer) {
      cache.now_at(LayerId(layer));
      for (int64_t expert = 0; expert < 8; ++expert) {
        cache.acquire(rule_key(layer, expert))->lease.release();
        cache.used(rule_key(layer, expert), 100);
      }
    }
    const CacheCounters before = cache.counters();
    decode(cache);
    hits[rule] = (cache.counters() - before).hits;
  }
  EXPECT_EQ(hits["lru"], 0);
  EXPECT_GE(hits["activation-aware"], 5);
}

// Expert 1 of the running layer 2 was predicted and not chosen: it leaves first. Then go experts
// that this pass does not need any more, the least recently used first (3.2 was never used); then
// predicted ones, far layers first, and last 2.3, which the gates chose.
TEST(Plec, MisprefetchedLeaveBeforeCompletedBeforePredicted) {
  const auto rule = make_eviction_rule("plec", 4);
  for (int64_t layer = 0; layer < 2; ++layer) {
    rule->now_at(LayerId(layer));
    rule->used(rule_key(layer, 0), 1);
  }
  rule->expect(LayerId(2), std::vector<double>{0.9, 0.8, 0.2, 0.1});
  rule->now_at(LayerId(2));
  rule->expect(LayerId(2), std::vector<double>{1, 0, 0, 1});
  rule->expect(LayerId(3), std::vector<double>{0.9, 0.8, 0.2, 0.1});
  rule->used(rule_key(2, 0), 1);
  EXPECT_EQ(leaving(*rule, {rule_key(0, 0), rule_key(1, 0), rule_key(2, 0), rule_key(2, 1),
                            rule_key(2, 3), rule_key(3, 0), rule_key(3, 2)}),
            (std::vector<ExpertKey>{rule_key(2, 1), rule_key(3, 2), rule_key(0, 0), rule_key(1, 0),
                                    rule_key(2, 0), rule_key(3, 0), rule_key(2, 3)}));
}

TEST(Plec, WithoutPredictionsTheLeastRecentlyUsedLeaves) {
  const auto rule = make_eviction_rule("plec", 3);
  for (const int64_t layer : {2, 0, 1}) {
    rule->now_at(LayerId(layer));
    rule->used(rule_key(layer, 0), 1);
  }
  EXPECT_EQ(leaving(*rule, {rule_key(0, 0), rule_key(1, 0), rule_key(2, 0)}),
            (std::vector<ExpertKey>{rule_key(2, 0), rule_key(0, 0), rule_key(1, 0)}));
}

// Random calls: an expert under lease stays where it is, no slot is lost, and the victim among all
// candidates is the victim among those of each layer, as the cache relies on.
TEST(PredictedRules, LeasesAreKeptAndNoSlotIsLost) {
  std::mt19937 random(3);
  const auto below = [&](int64_t most) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(most));
  };
  for (int round = 0; round < 60; ++round) {
    const int64_t layers = 1 + below(5);
    const int64_t slots = 1 + below(8);
    ExpertCache cache(slots,
                      make_eviction_rule(round % 2 == 0 ? "activation-aware" : "plec", layers));
    std::map<ExpertKey, ExpertLease> held;
    int64_t layer = 0;
    for (int step = 0; step < 300; ++step) {
      const ExpertKey key = rule_key(below(layers), below(5));
      const int64_t call = below(6);
      if (call == 0) {
        layer = (layer + 1) % layers;
        cache.now_at(LayerId(layer));
      } else if (call == 1) {
        std::vector<double> probability;
        for (int e = 0; e < 5; ++e) probability.push_back(static_cast<double>(below(11)) / 10.0);
        cache.expect(key.layer, probability);
      } else if (call == 2) {
        held.erase(key);
      } else if (auto grant = cache.acquire(key)) {
        ASSERT_EQ(grant->must_load && held.contains(key), false);
        if (!held.contains(key)) held.emplace(key, std::move(grant->lease));
      } else {
        ASSERT_EQ(std::ssize(held), slots) << "refused only where all are under lease";
      }
      std::set<int64_t> used_slots;
      for (const auto& [leased, lease] : held) {
        ASSERT_EQ(cache.leased_slot(leased), lease.slot());
        ASSERT_TRUE(used_slots.insert(lease.slot()).second);
      }
      ASSERT_EQ(cache.free_or_evictable(), slots - std::ssize(held));
    }
    held.clear();
  }
}

TEST(PredictedRules, TheCacheFindsTheRulesOwnVictim) {
  std::mt19937 random(8);
  for (const std::string_view name : eviction_rule_names()) {
    const auto told = make_eviction_rule(name, 3);
    ExpertCache cache(6, make_eviction_rule(name, 3));
    std::set<ExpertKey> resident;
    for (int step = 0; step < 2000; ++step) {
      const LayerId layer(static_cast<int64_t>(random() % 3));
      const ExpertKey key{layer, ExpertId(static_cast<int64_t>(random() % 6))};
      if (step % 3 == 0) {
        told->now_at(layer);
        cache.now_at(layer);
      } else if (step % 7 == 0) {
        std::vector<double> probability;
        for (int e = 0; e < 6; ++e) probability.push_back(static_cast<double>(random() % 9) / 8.0);
        told->expect(layer, probability);
        cache.expect(layer, probability);
      }
      if (!resident.contains(key) && resident.size() == 6) {
        const std::vector<ExpertKey> candidates(resident.begin(), resident.end());
        resident.erase(candidates[told->victim(candidates)]);
      }
      resident.insert(key);
      told->used(key, 1);
      cache.acquire(key)->lease.release();
      for (const ExpertKey one : resident) ASSERT_TRUE(cache.resident(one)) << name << " " << step;
    }
  }
}

}  // namespace
}  // namespace klotski
