#pragma once

#include "planner/pass_simulator.h"

namespace klotski {

// Some layers of a model that stand for all of them, so that many plans can be compared in little
// time: evenly taken, with their share of the slots and of a pass's time besides its layers.
class LayerSample {
 public:
  // A sample of at most `most_layers` layers. Objects that the whole refers to must live longer.
  LayerSample(const PredictionInputs& whole, int64_t most_layers);
  LayerSample(const LayerSample&) = delete;  // prediction_inputs() refers to it
  LayerSample& operator=(const LayerSample&) = delete;

  PredictionInputs prediction_inputs() const;
  // The time of a pass of the whole model as a multiple of a pass of the sample.
  double times_as_long() const;
  // The policy with slots for an equal share of the units of every kind.
  Policy policy(Policy whole) const;

 private:
  WeightUnit unit_of_whole(WeightUnit unit) const;
  int64_t scaled(int64_t slots, size_t kind) const;

  std::vector<LayerId> layers_;  // layers of the whole model
  int64_t all_layers_;
  std::array<double, kUnitKinds> share_of_units_{};
  std::array<int64_t, kUnitKinds> units_{};  // units of the sample
  ModelDescription model_;
  UnitTable<UnitFacts> facts_;
  Profile profile_;
  ExpertShares shares_;
  std::array<int64_t, kUnitKinds> most_of_layer_;  // units, of the sample
};

}  // namespace klotski
