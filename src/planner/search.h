#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "planner/choices.h"
#include "planner/memory_plan.h"
#include "planner/prediction.h"

namespace klotski {

// A group that has been given its memory.
struct FittedGroup {
  Policy policy;
  MemoryPlan memory;
  std::optional<MemoryPlan> host{};  // host memory of a device
  int64_t at_once = 1;               // sequences for whose keys and values there is room
};

struct Candidate {
  Choice choice;
  FittedGroup group;
  Prediction prediction;
};

// Predicts coarsely every group size that fits (`fit` gives nothing for one that does not), roughly
// those that come near the fastest and the variants of the fastest, and with care the best three to
// six, the best of each other way that comes near, and the variants of the fastest that are roughly
// as fast. The chosen candidate comes first, then the others predicted with care, then the rest by
// the tokens they generate a second, as last predicted and scaled by how far off that was for the
// best. Where several are within a hundredth of the fastest, the smallest group is chosen, among
// groups of one size that whose processors wait for each other least, then the last strategy and
// the usual K.
std::vector<Candidate> search(const PredictionInputs& with, const PlannedWork& work,
                              const SearchSpace& space,
                              const std::function<std::optional<FittedGroup>(const Choice&)>& fit);

}  // namespace klotski
