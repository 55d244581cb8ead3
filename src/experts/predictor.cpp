#include "experts/predictor.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace klotski {

RoutingTraceShape routing_shape(const ModelDescription& model) {
  RoutingTraceShape shape{.model = model.family, .layers = {}};
  for (int64_t i = 0; i < model.layer_count(); ++i) {
    const FeedForward& part = model.layer(LayerId(i)).feed_forward;
    if (!part.routed) continue;
    shape.layers.push_back({LayerId(i), static_cast<int32_t>(part.experts), part.router.top_k});
  }
  return shape;
}

ExpertPredictor::ExpertPredictor(RoutingTraceShape shape)
    : shape_(std::move(shape)), choices_(shape_, 0) {
  for (size_t i = 0; i < shape_.layers.size(); ++i) {
    const auto layer = static_cast<size_t>(shape_.layers[i].layer.value);
    routed_index_.resize(layer + 1, -1);
    routed_index_[layer] = static_cast<int64_t>(i);
  }
}

int64_t ExpertPredictor::routed_index(LayerId layer) const {
  const auto index = static_cast<size_t>(layer.value);
  return index < routed_index_.size() ? routed_index_[index] : -1;
}

void ExpertPredictor::begin_pass(std::vector<PassToken> tokens, LayerId first) {
  tokens_ = std::move(tokens);
  size_t skipped = 0;
  while (skipped < shape_.layers.size() && shape_.layers[skipped].layer < first) ++skipped;
  choices_.restart(std::ssize(tokens_), skipped);
  pass_begun();
}

void ExpertPredictor::observe(LayerId layer, std::span<const ExpertId> choices) {
  const size_t next = choices_.known_layers();
  if (routed_index(layer) != static_cast<int64_t>(next)) {
    fail(ErrorKind::internal, "predictor: layer {} is not the pass's routed layer {}", layer.value,
         next);
  }
  choices_.add_layer(choices);
  learn(next);
}

std::vector<double> ExpertPredictor::probabilities(LayerId layer, int64_t first,
                                                   int64_t count) const {
  const int64_t index = routed_index(layer);
  if (index < 0) return {1.0};
  const auto routed = static_cast<size_t>(index);
  std::vector<double> none(static_cast<size_t>(shape_.layers[routed].experts), 1.0);
  for (int64_t token = first; token < first + count; ++token) {
    if (routed < choices_.known_layers()) {
      for (const ExpertId expert : choices_.token(routed, token)) {
        none[static_cast<size_t>(expert.value)] = 0.0;
      }
      continue;
    }
    const std::vector<double> of_token = estimate(routed, token);
    for (size_t e = 0; e < none.size(); ++e) none[e] *= 1.0 - of_token[e];
  }
  for (double& probability : none) probability = 1.0 - probability;
  return none;
}

std::vector<LayerProbabilities> ExpertPredictor::coming(int64_t horizon) const {
  std::vector<LayerProbabilities> layers;
  const auto first = static_cast<int64_t>(choices_.known_layers());
  const int64_t end = std::min(first + horizon, std::ssize(shape_.layers));
  for (int64_t routed = first; routed < end; ++routed) {
    const LayerId layer = shape_.layers[static_cast<size_t>(routed)].layer;
    layers.push_back({layer, group_probabilities(layer)});
  }
  return layers;
}

std::vector<ExpectedExpert> ExpertPredictor::predict(LayerId layer, int64_t count) const {
  const int64_t routed = routed_index(layer);
  if (routed < 0) return {{ExpertId(0), 1.0}};
  const auto index = static_cast<size_t>(routed);
  return index < choices_.known_layers() ? predict_in_next_pass(index, count)
                                         : predict_routed(index, count);
}

std::vector<ExpectedExpert> ExpertPredictor::predict_routed(size_t routed_layer,
                                                            int64_t count) const {
  std::vector<double> sums(static_cast<size_t>(shape_.layers[routed_layer].experts));
  double all = 0.0;
  for (int64_t token = 0; token < choices_.tokens(); ++token) {
    const std::vector<double> of_token = estimate(routed_layer, token);
    for (size_t e = 0; e < sums.size(); ++e) {
      sums[e] += of_token[e];
      all += of_token[e];
    }
  }
  std::vector<ExpectedExpert> experts;
  for (size_t e = 0; e < sums.size(); ++e) {
    if (sums[e] > 0) experts.push_back({ExpertId(static_cast<int64_t>(e)), sums[e] / all});
  }
  std::stable_sort(
      experts.begin(), experts.end(),
      [](const ExpectedExpert& a, const ExpectedExpert& b) { return a.share > b.share; });
  experts.resize(std::min(experts.size(), static_cast<size_t>(std::max<int64_t>(count, 0))));
  return experts;
}

}  // namespace klotski
