#include "engine/prediction_audit.h"

#include <algorithm>

namespace klotski {

PredictionAudit::PredictionAudit(const RoutingTraceShape& shape)
    : layers_(shape.layers), predicted_(shape.layers.size()) {
  for (size_t i = 0; i < layers_.size(); ++i) {
    const auto layer = static_cast<size_t>(layers_[i].layer.value);
    routed_index_.resize(layer + 1, layers_.size());
    routed_index_[layer] = i;
    accuracy_.push_back({.layer = layers_[i].layer});
  }
}

void PredictionAudit::predicted(LayerId layer, std::span<const ExpertId> experts) {
  const auto index = static_cast<size_t>(layer.value);
  if (index >= routed_index_.size() || routed_index_[index] == layers_.size()) return;
  predicted_[routed_index_[index]].assign(experts.begin(), experts.end());
}

void PredictionAudit::chosen(LayerId layer, std::span<const ExpertId> choices) {
  const size_t routed = routed_index_[static_cast<size_t>(layer.value)];
  const std::vector<ExpertId>& predicted = predicted_[routed];
  std::vector<int64_t> tokens(static_cast<size_t>(layers_[routed].experts), 0);
  for (const ExpertId expert : choices) ++tokens[static_cast<size_t>(expert.value)];
  LayerAccuracy& accuracy = accuracy_[routed];
  for (const ExpertId expert : predicted) {
    const int64_t taken = tokens[static_cast<size_t>(expert.value)];
    const auto hotter =
        std::count_if(tokens.begin(), tokens.end(), [&](int64_t other) { return other > taken; });
    ++accuracy.foretold;
    if (taken > 0) ++accuracy.participated;
    if (taken > 0 && hotter < static_cast<int64_t>(predicted.size())) ++accuracy.truly_hot;
  }
}

}  // namespace klotski
