#pragma once

#include "experts/correlation_table.h"
#include "experts/predictor.h"

namespace klotski {

// Predicts a layer's experts from the pass's choices in the layers before, with a correlation table
// that learns from every pass.
class CorrelationPredictor : public ExpertPredictor {
 public:
  // `table` is of this model's layers, and must live longer.
  CorrelationPredictor(const ModelDescription& model, CorrelationTable& table)
      : ExpertPredictor(model), table_(table) {}

 private:
  void learn(size_t routed_layer) override { table_.observe_layer(routed_layer, choices()); }
  std::vector<ExpectedExpert> predict_routed(size_t routed_layer, int64_t count) const override {
    return table_.hot_experts(routed_layer, choices(), count);
  }

  CorrelationTable& table_;
};

}  // namespace klotski
