#pragma once

#include "experts/correlation_table.h"
#include "experts/predictor.h"

namespace klotski {

// Predicts a layer's experts from the pass's choices in the layers before, with a correlation table
// that learns from every pass. Layers behind the next one are predicted by their popularity.
class CorrelationPredictor : public ExpertPredictor {
 public:
  // `table` must live longer.
  explicit CorrelationPredictor(CorrelationTable& table)
      : ExpertPredictor(table.shape()), table_(table) {}

 private:
  void learn(size_t routed_layer) override { table_.observe_layer(routed_layer, choices()); }
  std::vector<double> estimate(size_t routed_layer, int64_t token) const override {
    return table_.probabilities(routed_layer, choices(), token);
  }
  std::vector<ExpectedExpert> predict_routed(size_t routed_layer, int64_t count) const override {
    return table_.hot_experts(routed_layer, choices(), count);
  }

  CorrelationTable& table_;
};

}  // namespace klotski
