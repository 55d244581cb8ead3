#include "probe/model.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "probe/layer_parts.h"

namespace klotski {

std::string layer_shape(const Layer& layer) {
  const FeedForward& part = layer.feed_forward;
  const RouterRule& router = part.router;
  std::string text = layer.attention.shape();
  text += fmt::format("; experts {} width {} activation {}", part.experts, part.width,
                      static_cast<int>(part.activation));
  if (part.routed) {
    text += fmt::format(" routed {} of {} groups {} {} {} bias {}", static_cast<int>(router.score),
                        router.top_k, router.groups, router.groups_kept,
                        static_cast<int>(router.group_score), part.selection_bias);
  }
  if (!part.gated) text += " not gated";
  if (part.router_bias || part.expert_bias || part.scales_inputs) {
    text += fmt::format(" biases {} {} scaled {}", part.router_bias, part.expert_bias,
                        part.scales_inputs);
  }
  if (part.shared)
    text += fmt::format(" shared {} gated {}", part.shared->width, part.shared->gated);
  return text;
}

ModelProfile measure_model(const ModelDescription& model, const StoredTypes& types,
                           const Processor& ops, Precision precision, Tier& tier,
                           const ProbeLimits& limits) {
  const ProbeLimits reached = beyond_caches(limits);
  const PartsBench bench{tier, reached, ops, precision, types};
  ModelProfile profile;
  std::vector<std::string> shapes;
  for (int64_t i = 0; i < model.layer_count(); ++i) {
    const LayerId layer(i);
    const std::string shape = layer_shape(model.layer(layer));
    const auto known = std::find(shapes.begin(), shapes.end(), shape);
    profile.kind_of_layer.push_back(static_cast<int>(known - shapes.begin()));
    if (known != shapes.end()) continue;
    shapes.push_back(shape);
    LayerProfile& kind = profile.kinds.emplace_back();
    measure_attention(bench, model, layer, kind);
    measure_gate(bench, model, layer, kind);
    measure_expert(bench, model, layer, kind);
  }
  measure_embedding(bench, model, profile);
  return profile;
}

}  // namespace klotski
