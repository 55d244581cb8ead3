#include "experts/oracle.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <vector>

#include "base/error.h"
#include "experts/expert_cache.h"

namespace klotski {
namespace {

ExpertKey oracle_key(int64_t layer, int64_t expert) { return {LayerId(layer), ExpertId(expert)}; }

int64_t hits_of(std::span<const ExpertKey> requests, int64_t slots,
                std::unique_ptr<EvictionRule> rule) {
  ExpertCache cache(slots, std::move(rule));
  for (const ExpertKey key : requests) cache.acquire(key)->lease.release();
  return cache.counters().hits;
}

// The most hits that any choice of victims has, found by trying all of them.
int64_t best_hits(std::span<const ExpertKey> requests, int64_t slots, std::set<ExpertKey> held) {
  if (requests.empty()) return 0;
  const ExpertKey key = requests[0];
  if (held.contains(key)) return 1 + best_hits(requests.subspan(1), slots, std::move(held));
  if (std::ssize(held) < slots) {
    held.insert(key);
    return best_hits(requests.subspan(1), slots, std::move(held));
  }
  int64_t best = 0;
  for (const ExpertKey victim : held) {
    std::set<ExpertKey> after = held;
    after.erase(victim);
    after.insert(key);
    best = std::max(best, best_hits(requests.subspan(1), slots, std::move(after)));
  }
  return best;
}

// The requests 0 1 2 0 1 3 0 3 1 2 with two slots: after 0 1 the 2 takes the place of 1 (next used
// later than 0), 1 that of 2 (last used), 3 that of 1 (used after 0), then 0 and 3 hit, 1 and 2
// miss: three hits.
TEST(Oracle, AnExampleWorkedByHand) {
  std::vector<ExpertKey> requests;
  for (const int64_t expert : {0, 1, 2, 0, 1, 3, 0, 3, 1, 2}) {
    requests.push_back(oracle_key(0, expert));
  }
  EXPECT_EQ(hits_of(requests, 2, make_oracle_rule(requests)), 3);
}

TEST(Oracle, NoRuleHasMoreHits) {
  std::mt19937 random(5);
  for (int round = 0; round < 60; ++round) {
    std::vector<ExpertKey> requests;
    for (int i = 0; i < 11; ++i) {
      requests.push_back(
          oracle_key(static_cast<int64_t>(random() % 2), static_cast<int64_t>(random() % 3)));
    }
    const auto slots = 1 + static_cast<int64_t>(random() % 4);
    const int64_t oracle = hits_of(requests, slots, make_oracle_rule(requests));
    ASSERT_EQ(oracle, best_hits(requests, slots, {})) << "round " << round;
    for (const std::string_view rule : eviction_rule_names()) {
      EXPECT_LE(hits_of(requests, slots, make_eviction_rule(rule, 2)), oracle) << rule;
    }
  }
}

TEST(Oracle, RequestsMustComeAsAnnounced) {
  const std::vector<ExpertKey> announced = {oracle_key(0, 1)};
  const auto rule = make_oracle_rule(announced);
  EXPECT_THROW(rule->used(oracle_key(0, 2), 1), Error);
  rule->used(oracle_key(0, 1), 1);
  EXPECT_THROW(rule->used(oracle_key(0, 1), 1), Error);
}

}  // namespace
}  // namespace klotski
