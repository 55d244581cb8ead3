#pragma once

#include <cstdint>
#include <vector>

namespace klotski {

// The lean of a router's choices towards some experts. Experts of a layer are ranked; the expert of
// rank r gets the bias strength * K / (K + r) on logits whose noise has deviation 1, so that a few
// are hot and the rest fall off slowly, as in trained models.
struct Popularity {
  int64_t experts = 1;
  int64_t top_k = 1;
  double strength = 0.0;

  double bias(int64_t rank) const {
    const auto k = static_cast<double>(top_k);
    return strength * k / (k + static_cast<double>(rank));
  }
};

// The strength at which the top_k most popular experts take `share` of all choices, found by
// simulation. A share of top_k / experts or less gives 0: even routing.
Popularity popularity_for_share(int64_t experts, int64_t top_k, double share);

// The rank of each expert, random for each key.
std::vector<int64_t> ranks_of_experts(uint64_t key, int64_t experts);

}  // namespace klotski
