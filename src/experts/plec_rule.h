#pragma once

#include <cstdint>
#include <memory>

#include "experts/eviction.h"

namespace klotski {

// "plec": ExpertFlow's predictive locality-aware expert caching (section 3.2) with its real-time
// correction. Experts leave in this order:
//   1. mis-prefetched: predicted active in the running layer, whose gates left them out;
//   2. not needed any more in this pass: of layers that are over, of the running layer once used,
//      and predicted idle in coming layers; the least recently used first;
//   3. predicted active in a coming layer, the furthest layer first; then those that the gates of
//      the running layer chose.
// As many experts of a layer count as predicted active as the sum of its probabilities says. Of a
// layer that nothing was told about all experts count as idle. Ties to the lowest key.
std::unique_ptr<EvictionRule> make_plec_rule(int64_t layer_count);

}  // namespace klotski
