#pragma once

#include <span>

#include "planner/layer_sample.h"
#include "planner/prediction.h"
#include "planner/search.h"

namespace klotski {

// How much time predictions may take: coarse ones find choices that are far from the best, rough
// ones order those that are near, careful ones are within a hundredth or so of a prediction of all
// layers.
enum class Care { coarse, rough, careful };

// Predictions of one run by several policies, made from some of the layers and scaled to all.
class SampledPrediction {
 public:
  // `experts`: those of the layer that has most. Objects that the whole refers to, and the work,
  // must live longer.
  SampledPrediction(const PredictionInputs& whole, const PlannedWork& work, int64_t experts,
                    Care care);

  // The prediction of a run with room for keys and values of `at_once` sequences. May be called by
  // several threads.
  Prediction of(const Policy& policy, int64_t at_once) const;
  // Replaces the predictions of all candidates, on as many threads as the process may use.
  void of_all(std::span<Candidate> candidates) const;

 private:
  PredictionDetail detail_;
  LayerSample sample_;
  PredictionInputs with_;
  const PlannedWork& work_;
};

}  // namespace klotski
