#pragma once

#include <cstdint>
#include <vector>

#include "model/units.h"
#include "probe/random_weights.h"

namespace klotski {

// A model of one layer to measure a unit with, and how many times the sample's work the unit's is.
struct Sample {
  ModelDescription model;
  UnitKind kind;
  double scale = 1.0;

  std::vector<TensorSpec> tensors() const;
};

// The layer as it is where one copy of the unit takes no more than these bytes; else with narrower
// matrices: fewer heads, a smaller expert, a smaller vocabulary, as far as they can be halved.
Sample sample_of(const ModelDescription& model, LayerId layer, UnitKind kind,
                 const StoredTypes& types, uint64_t most_bytes);

}  // namespace klotski
