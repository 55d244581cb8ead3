#include "experts/group_choices.h"

#include "base/error.h"

namespace klotski {

GroupChoices::GroupChoices(const RoutingTraceShape& shape, int64_t tokens)
    : shape_(shape.layers), tokens_(tokens), layers_(shape.layers.size()) {}

void GroupChoices::add_layer(std::span<const ExpertId> choices) {
  if (known_layers_ == shape_.size()) {
    fail(ErrorKind::internal, "choices of a group: expected {} routed layers, found one more",
         shape_.size());
  }
  const RoutedLayer& layer = shape_[known_layers_];
  if (static_cast<int64_t>(choices.size()) != tokens_ * layer.top_k) {
    fail(ErrorKind::internal, "choices of layer {}: expected {} for {} tokens, found {}",
         layer.layer.value, tokens_ * layer.top_k, tokens_, choices.size());
  }
  for (const ExpertId expert : choices) {
    if (expert.value < 0 || expert.value >= layer.experts) {
      fail(ErrorKind::internal, "choices of layer {}: expected an expert below {}, found {}",
           layer.layer.value, layer.experts, expert.value);
    }
  }
  layers_[known_layers_++].assign(choices.begin(), choices.end());
}

void GroupChoices::restart(int64_t tokens, size_t skipped) {
  tokens_ = tokens;
  known_layers_ = 0;
  while (known_layers_ < skipped) {
    const int64_t top_k = shape_[known_layers_].top_k;
    std::vector<ExpertId> first;
    for (int64_t i = 0; i < tokens * top_k; ++i) first.emplace_back(i % top_k);
    add_layer(first);
  }
}

std::span<const ExpertId> GroupChoices::token(size_t routed_layer, int64_t token) const {
  const auto top_k = static_cast<size_t>(shape_[routed_layer].top_k);
  return layer(routed_layer).subspan(static_cast<size_t>(token) * top_k, top_k);
}

}  // namespace klotski
