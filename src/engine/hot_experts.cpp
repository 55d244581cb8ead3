#include "engine/hot_experts.h"

#include <algorithm>

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

HotExperts::HotExperts(const ModelDescription& model, int64_t count, int path_length)
    : count_(count), table_(routing_shape(model), path_length), choices_(table_.shape(), 0) {
  routed_index_.assign(static_cast<size_t>(model.layer_count()), -1);
  for (size_t i = 0; i < table_.shape().layers.size(); ++i) {
    const LayerId layer = table_.shape().layers[i].layer;
    routed_index_[static_cast<size_t>(layer.value)] = static_cast<int64_t>(i);
    accuracy_.push_back({.layer = layer});
  }
  foretold_.resize(accuracy_.size());
}

void HotExperts::begin_pass(int64_t tokens) { choices_.restart(tokens); }

std::vector<ExpertId> HotExperts::foretell(LayerId layer) {
  const int64_t index = routed_index_[static_cast<size_t>(layer.value)];
  if (index < 0) return {ExpertId(0)};
  const auto routed = static_cast<size_t>(index);
  const int64_t count = count_ > 0 ? count_ : table_.shape().layers[routed].top_k;
  foretold_[routed] = table_.hot_experts(routed, choices_, count);
  return foretold_[routed];
}

void HotExperts::learn(LayerId layer, std::span<const ExpertId> choices) {
  const auto routed = static_cast<size_t>(routed_index_[static_cast<size_t>(layer.value)]);
  count_hits(routed, choices);
  choices_.add_layer(choices);
  table_.observe_layer(routed, choices_);
}

void HotExperts::count_hits(size_t routed, std::span<const ExpertId> choices) {
  const std::vector<ExpertId>& foretold = foretold_[routed];
  std::vector<int64_t> tokens(static_cast<size_t>(table_.shape().layers[routed].experts), 0);
  for (const ExpertId expert : choices) ++tokens[static_cast<size_t>(expert.value)];
  LayerAccuracy& accuracy = accuracy_[routed];
  for (const ExpertId expert : foretold) {
    const int64_t taken = tokens[static_cast<size_t>(expert.value)];
    const auto hotter =
        std::count_if(tokens.begin(), tokens.end(), [&](int64_t other) { return other > taken; });
    ++accuracy.foretold;
    if (taken > 0) ++accuracy.participated;
    if (taken > 0 && hotter < static_cast<int64_t>(foretold.size())) ++accuracy.truly_hot;
  }
}

}  // namespace klotski
