#include "experts/predictor.h"

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

ExpertPredictor::ExpertPredictor(const ModelDescription& model)
    : routed_index_(static_cast<size_t>(model.layer_count()), -1),
      choices_(routing_shape(model), 0) {
  int64_t routed = 0;
  for (size_t i = 0; i < routed_index_.size(); ++i) {
    if (model.layers[i].feed_forward.routed) routed_index_[i] = routed++;
  }
}

void ExpertPredictor::observe(LayerId layer, std::span<const ExpertId> choices) {
  const size_t next = choices_.known_layers();
  if (routed_index_[static_cast<size_t>(layer.value)] != static_cast<int64_t>(next)) {
    fail(ErrorKind::internal, "predictor: layer {} is not the pass's routed layer {}", layer.value,
         next);
  }
  choices_.add_layer(choices);
  learn(next);
}

std::vector<ExpectedExpert> ExpertPredictor::predict(LayerId layer, int64_t count) const {
  const int64_t routed = routed_index_[static_cast<size_t>(layer.value)];
  if (routed < 0) return {{ExpertId(0), 1.0}};
  return predict_routed(static_cast<size_t>(routed), count);
}

}  // namespace klotski
