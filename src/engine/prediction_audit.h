#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "experts/routing_trace.h"

namespace klotski {

// How well the experts of a layer were predicted: the two lines of the paper's Figure 13.
struct LayerAccuracy {
  LayerId layer;
  int64_t foretold = 0;      // predicted experts
  int64_t participated = 0;  // foretold experts that some token chose
  int64_t truly_hot = 0;     // foretold experts among as many that took most tokens
};

// Compares the experts that a schedule was told to expect with the gates' choices.
class PredictionAudit {
 public:
  explicit PredictionAudit(const RoutingTraceShape& shape);

  // The experts that the layer's next run is expected to need most. They replace the layer's
  // earlier prediction; a layer that is not routed does not count.
  void predicted(LayerId layer, std::span<const ExpertId> experts);
  // The choices of the layer's gates: [token][top_k].
  void chosen(LayerId layer, std::span<const ExpertId> choices);

  const std::vector<LayerAccuracy>& accuracy() const { return accuracy_; }  // by routed layer

 private:
  std::vector<RoutedLayer> layers_;
  std::vector<size_t> routed_index_;              // [layer]; layers_.size(): not routed
  std::vector<std::vector<ExpertId>> predicted_;  // experts by routed layer
  std::vector<LayerAccuracy> accuracy_;
};

}  // namespace klotski
