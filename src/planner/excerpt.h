#pragma once

#include "planner/pass_simulator.h"

namespace klotski {

// Some layers of a model that stand for all of them, so that many plans can be compared in little
// time: evenly taken, with their share of the slots.
class Excerpt {
 public:
  // At most so many layers. What the whole refers to must live longer.
  Excerpt(const Machinery& whole, int64_t most_layers);

  Machinery machinery() const;
  // The policy with slots for the same share of the units of every kind.
  Policy policy(Policy whole) const;

 private:
  int64_t scaled(int64_t slots, size_t kind) const;

  std::vector<LayerId> layers_;  // of the whole model
  std::function<UnitFacts(const WeightUnit&)> whole_facts_;
  std::array<double, kUnitKinds> share_of_units_{};
  std::array<int64_t, kUnitKinds> units_{};  // of the excerpt
  ModelDescription model_;
  Profile profile_;
  ExpertShares shares_;
  std::array<int64_t, kUnitKinds> most_of_layer_;  // units, of the excerpt
};

}  // namespace klotski
