#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "experts/routing_trace.h"

namespace klotski {

// The experts that the tokens of one group chose, for the routed layers that have run so far.
class GroupChoices {
 public:
  GroupChoices(const RoutingTraceShape& shape, int64_t tokens);

  int64_t tokens() const { return tokens_; }
  // Layers run in order, so these are the routed layers 0 .. known_layers() - 1.
  size_t known_layers() const { return known_layers_; }

  // The choices of the next routed layer: [token][top_k], best first.
  void add_layer(std::span<const ExpertId> choices);
  // Begins a new pass over the layers with another group; keeps the memory. A pass that begins
  // after `skipped` routed layers counts as having chosen their first experts.
  void restart(int64_t tokens, size_t skipped = 0);

  std::span<const ExpertId> layer(size_t routed_layer) const { return layers_[routed_layer]; }
  std::span<const ExpertId> token(size_t routed_layer, int64_t token) const;

 private:
  std::vector<RoutedLayer> shape_;
  int64_t tokens_;
  size_t known_layers_ = 0;
  std::vector<std::vector<ExpertId>> layers_;
};

}  // namespace klotski
