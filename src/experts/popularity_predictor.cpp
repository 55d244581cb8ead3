#include "experts/popularity_predictor.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace klotski {

std::vector<ExpertId> by_share(const std::vector<double>& shares) {
  std::vector<ExpertId> experts;
  for (size_t e = 0; e < shares.size(); ++e) experts.emplace_back(static_cast<int64_t>(e));
  std::stable_sort(experts.begin(), experts.end(), [&](ExpertId a, ExpertId b) {
    return shares[static_cast<size_t>(a.value)] > shares[static_cast<size_t>(b.value)];
  });
  return experts;
}

namespace {

void check_layers_of_shares(size_t expected, size_t found) {
  if (expected == found) return;
  fail(ErrorKind::internal, "popularity: expected shares of {} layers, found {}", expected, found);
}

std::vector<std::vector<double>> of_routed_layers(const ModelDescription& model,
                                                  const std::vector<std::vector<double>>& shares) {
  check_layers_of_shares(model.layers.size(), shares.size());
  std::vector<std::vector<double>> routed;
  for (size_t i = 0; i < shares.size(); ++i) {
    if (model.layers[i].feed_forward.routed) routed.push_back(shares[i]);
  }
  return routed;
}

}  // namespace

PopularityPredictor::PopularityPredictor(const ModelDescription& model,
                                         const std::vector<std::vector<double>>& shares)
    : PopularityPredictor(routing_shape(model), of_routed_layers(model, shares)) {}

PopularityPredictor::PopularityPredictor(RoutingTraceShape shape,
                                         const std::vector<std::vector<double>>& shares)
    : ExpertPredictor(std::move(shape)) {
  check_layers_of_shares(this->shape().layers.size(), shares.size());
  for (const std::vector<double>& of_layer : shares) {
    std::vector<ExpectedExpert>& experts = by_layer_.emplace_back();
    for (const ExpertId expert : by_share(of_layer)) {
      experts.push_back({expert, of_layer[static_cast<size_t>(expert.value)]});
    }
  }
}

std::vector<double> PopularityPredictor::estimate(size_t routed_layer, int64_t) const {
  const std::vector<ExpectedExpert>& all = by_layer_[routed_layer];
  std::vector<double> probabilities(all.size());
  for (const ExpectedExpert& one : all) {
    probabilities[static_cast<size_t>(one.expert.value)] =
        std::min(1.0, one.share * shape().layers[routed_layer].top_k);
  }
  return probabilities;
}

std::vector<ExpectedExpert> PopularityPredictor::predict_routed(size_t routed_layer,
                                                                int64_t count) const {
  const std::vector<ExpectedExpert>& all = by_layer_[routed_layer];
  return {all.begin(), all.begin() + std::min<int64_t>(count, std::ssize(all))};
}

}  // namespace klotski
