#pragma once

#include <vector>

#include "experts/predictor.h"

namespace klotski {

// The experts of a layer, most popular first; equals as they are numbered.
std::vector<ExpertId> by_share(const std::vector<double>& shares);

// Predicts the experts that are chosen most, whatever the pass has chosen so far. Learns nothing.
class PopularityPredictor : public ExpertPredictor {
 public:
  // `shares`: the share of a layer's choices that goes to each expert, [layer of the model][expert]
  // or, for a shape, [routed layer][expert].
  PopularityPredictor(const ModelDescription& model,
                      const std::vector<std::vector<double>>& shares);
  PopularityPredictor(RoutingTraceShape shape, const std::vector<std::vector<double>>& shares);

 private:
  void learn(size_t) override {}
  std::vector<double> estimate(size_t routed_layer, int64_t token) const override;
  std::vector<ExpectedExpert> predict_routed(size_t routed_layer, int64_t count) const override;

  std::vector<std::vector<ExpectedExpert>> by_layer_;  // [routed layer], likeliest first
};

}  // namespace klotski
