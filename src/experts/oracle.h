#pragma once

// Rules that know the future, to say how much a cache could gain at most. For experiments: they
// need every request before the first.

#include <span>
#include <vector>

#include "experts/eviction.h"

namespace klotski {

// Belady's rule: the expert whose next use is furthest in the future leaves, one that is never used
// again before all others; ties to the lower key. No rule has fewer misses. `requests` are all uses
// in their order, one call of used() each.
std::unique_ptr<EvictionRule> make_oracle_rule(std::span<const ExpertKey> requests);

}  // namespace klotski
