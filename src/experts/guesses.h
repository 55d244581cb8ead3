#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "experts/eviction.h"
#include "experts/expected_expert.h"

namespace klotski {

// An expert that may be brought before any gate asks for it.
struct Guess {
  ExpertKey expert;
  double priority = 0.0;  // 0 to 1
};

// MoE-Infinity, section 5.2: the priority of an expert is the probability that it is used times the
// proximity of its layer, 1 - d / layer_count with d layers between the layer that runs `next` and
// the expert's. The highest first; experts that hardly any pass uses are left out.
std::vector<Guess> by_priority(const std::vector<LayerProbabilities>& coming, LayerId next,
                               int64_t layer_count);

// Whether a guess is worth its way after `made` others since the last gates, where the link brings
// `loads` experts until the next gates choose theirs. A guess that is used saves one load; the part
// of it that the link has not done when the gates have chosen delays what they ask for.
inline bool worth_guessing(const Guess& guess, size_t made, double loads) {
  return guess.priority > static_cast<double>(made + 1) - loads;
}

}  // namespace klotski
