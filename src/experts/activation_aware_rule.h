#pragma once

#include <cstdint>
#include <memory>

#include "experts/eviction.h"

namespace klotski {

// "activation-aware" (MoE-Infinity, section 5): the expert with the least probability of use,
// weighed down by the layers until it can be used, leaves first.
//   p  share of the passes that used the expert; a pass counts half after kHalfLifePasses. Where
//      expect_in_next_pass() told a probability (the request-level matrix), the mean of both
//   q  probability of use in this pass as expect() told; p where nothing was told
//   d  layers until the expert's layer runs next, L layers in all
// An expert of a layer to come has the priority q / sqrt(d) + (1 - q) p / sqrt(d + L), another
// p / sqrt(d). Initial layers are favoured, since their experts are predicted with the least
// knowledge: priorities of the first layer count kInitialLayerFavour more, those of the last none.
// A pass counts once however many of its tokens use an expert, so a prompt, which uses nearly all,
// leaves the order among the experts that decoding needs as it was. Ties to the lowest key.
std::unique_ptr<EvictionRule> make_activation_aware_rule(int64_t layer_count);

}  // namespace klotski
