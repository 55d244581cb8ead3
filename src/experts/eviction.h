#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "base/ids.h"

namespace klotski {

struct ExpertKey {
  LayerId layer;
  ExpertId expert;

  constexpr auto operator<=>(const ExpertKey&) const = default;
};

// Chooses which expert leaves the cache. Answers follow from the calls made so far alone: no clock,
// no order of hashes, so that a run can be repeated. A rule orders all experts: the victim among
// several sets is the victim among the victims of each.
class EvictionRule {
 public:
  virtual ~EvictionRule() = default;

  virtual void used(ExpertKey key, int64_t times) = 0;
  // The expert was brought before anyone used it. Rules that know nothing of the future take that
  // for a use: it would be the first to leave otherwise.
  virtual void brought_ahead(ExpertKey key) { used(key, 1); }
  // The index of the candidate to evict. There is at least one, all are distinct, none is leased.
  virtual size_t victim(std::span<const ExpertKey> candidates) = 0;
  // Whether bringing `key` in the place of `leaving`, which would leave next, is worth the way.
  virtual bool worth_replacing(ExpertKey leaving, ExpertKey key) {
    const ExpertKey both[] = {leaving, key};
    return victim(both) == 0;
  }
  // The layer begins to run.
  virtual void now_at(LayerId) {}
  // The probability that each expert of the layer is used in the pass at hand, [expert]: a layer
  // that runs now or later in the pass, told again whenever a gate has changed it.
  virtual void expect(LayerId, std::span<const double>) {}
  // The probability that each expert of the layer is used in the next pass, [expert]; empty:
  // nothing is known of it any more.
  virtual void expect_in_next_pass(LayerId, std::span<const double>) {}
  // Whether expect() and expect_in_next_pass() have any effect.
  virtual bool uses_expectations() const { return false; }
  // A number that changes whenever the order in which experts of the layer leave may have changed:
  // until then, equal candidates of that layer have the same victim.
  virtual int64_t order_version(LayerId layer) const = 0;
};

// Calls of used() after which the frequency of every expert is halved, so that old popularity
// fades: about ten passes over a model of 48 layers with 128 experts.
inline constexpr int64_t kUsesPerHalving = 65536;

// The names that make_eviction_rule() knows.
std::span<const std::string_view> eviction_rule_names();

// "lru": the least recently used. "lfu": the least frequently used, halved as above; ties to the
// least recent; an expert replaces another only when it is used clearly more often. "furthest":
// layers run in a cycle, so the expert whose layer comes up last from the running one on; an expert
// of the running layer counts as furthest once it was used in this pass and as nearest before. Ties
// to the least frequent, then to the lowest key. "activation-aware": see activation_aware_rule.h.
// "plec": see plec_rule.h. An expert that was never used counts as used before all others. Throws
// for other names.
std::unique_ptr<EvictionRule> make_eviction_rule(std::string_view name, int64_t layer_count,
                                                 int64_t uses_per_halving = kUsesPerHalving);

}  // namespace klotski
