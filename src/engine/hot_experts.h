#pragma once

#include <cstdint>
#include <vector>

#include "experts/correlation_table.h"
#include "model/description.h"

namespace klotski {

// How well the experts foretold for a layer were foretold: the two lines of the paper's Figure 13.
struct LayerAccuracy {
  LayerId layer;
  int64_t foretold = 0;
  int64_t participated = 0;  // of these, chosen by some token
  int64_t truly_hot = 0;     // of these, among as many that took most tokens
};

// The routed layers of a model, as traces and correlation tables name them.
RoutingTraceShape routing_shape(const ModelDescription& model);

// Foretells each layer's hot experts with the correlation table, learns what the gates chose, and
// keeps count of how good it was.
class HotExperts {
 public:
  // Foretells `count` experts a layer (0: as many as a token chooses) from the choices in the
  // `path_length` routed layers before.
  HotExperts(const ModelDescription& model, int64_t count, int path_length = 1);

  void begin_pass(int64_t tokens);
  // What the layer is expected to need most; the passes' earlier layers must be known. For a layer
  // that is not routed, its one expert.
  std::vector<ExpertId> foretell(LayerId layer);
  // What the gates of the next routed layer chose: [token][choices].
  void learn(LayerId layer, std::span<const ExpertId> choices);

  const GroupChoices& choices() const { return choices_; }
  const std::vector<LayerAccuracy>& accuracy() const { return accuracy_; }
  CorrelationTable& table() { return table_; }

 private:
  void count_hits(size_t routed, std::span<const ExpertId> choices);

  int64_t count_;
  std::vector<int64_t> routed_index_;  // by layer; -1: not routed
  CorrelationTable table_;
  GroupChoices choices_;
  std::vector<std::vector<ExpertId>> foretold_;  // by routed layer, for its next run
  std::vector<LayerAccuracy> accuracy_;          // by routed layer
};

}  // namespace klotski
