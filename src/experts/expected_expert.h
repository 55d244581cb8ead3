#pragma once

#include <vector>

#include "base/ids.h"

namespace klotski {

// An expert that a group is expected to choose.
struct ExpectedExpert {
  ExpertId expert;
  double share = 0.0;  // share of the layer's choices, 0 to 1

  bool operator==(const ExpectedExpert&) const = default;
};

// The probabilities that a layer's experts are chosen.
struct LayerProbabilities {
  LayerId layer;
  std::vector<double> probability;  // [expert], 0 to 1
};

}  // namespace klotski
