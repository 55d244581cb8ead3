#include "experts/popularity_predictor.h"

#include <algorithm>

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

PopularityPredictor::PopularityPredictor(const ModelDescription& model,
                                         const std::vector<std::vector<double>>& shares)
    : ExpertPredictor(model) {
  if (shares.size() != model.layers.size()) {
    fail(ErrorKind::internal, "popularity: expected shares of {} layers, found {}",
         model.layers.size(), shares.size());
  }
  for (size_t i = 0; i < shares.size(); ++i) {
    if (!model.layers[i].feed_forward.routed) continue;
    std::vector<ExpectedExpert>& experts = by_layer_.emplace_back();
    for (const ExpertId expert : by_share(shares[i])) {
      experts.push_back({expert, shares[i][static_cast<size_t>(expert.value)]});
    }
  }
}

std::vector<ExpectedExpert> PopularityPredictor::predict_routed(size_t routed_layer,
                                                                int64_t count) const {
  const std::vector<ExpectedExpert>& all = by_layer_[routed_layer];
  return {all.begin(), all.begin() + std::min<int64_t>(count, std::ssize(all))};
}

}  // namespace klotski
