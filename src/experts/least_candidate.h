#pragma once

#include <cstddef>
#include <span>

#include "experts/eviction.h"

namespace klotski {

// The index of the candidate whose rank, rank(ExpertKey), is least.
template <typename Rank>
size_t least_candidate(std::span<const ExpertKey> candidates, const Rank& rank) {
  size_t best = 0;
  auto best_rank = rank(candidates[0]);
  for (size_t i = 1; i < candidates.size(); ++i) {
    const auto candidate = rank(candidates[i]);
    if (candidate < best_rank) {
      best = i;
      best_rank = candidate;
    }
  }
  return best;
}

}  // namespace klotski
