#pragma once

// How many of the experts that tokens choose a predictor names, when it names as many as a token
// chooses.

#include <vector>

#include "experts/path_network.h"
#include "experts/traced_sequences.h"

namespace klotski {

struct Recall {
  std::vector<double> by_layer;  // [routed layer], 0 to 1
  double all = 0.0;              // over the choices of all layers
};

// Recall of a network, which sees the tokens up to the one it predicts for. `pool` may be null.
Recall path_recall(PathNetwork& network, const TracedSequences& judged, ThreadPool* pool);
// Recall of naming the experts of each layer that other sequences choose most.
Recall popularity_recall(const TracedSequences& learnt, const TracedSequences& judged);
// Recall of a correlation table learnt from other sequences, which sees the token's own choices in
// the layer before; popularity in the first layer.
Recall correlation_recall(const TracedSequences& learnt, const TracedSequences& judged);

}  // namespace klotski
