#pragma once

#include <string>
#include <vector>

#include "model/description.h"
#include "tensor/shape.h"

namespace klotski {

// A tensor that a description requires of a checkpoint.
struct TensorSpec {
  Role role;
  std::string name;
  Shape shape;
};

// Embedding, final norm and, unless tied, output projection.
std::vector<TensorSpec> model_tensors(const ModelDescription& model);

// What every token of a layer uses: attention, norms, router, shared expert.
std::vector<TensorSpec> layer_tensors(const ModelDescription& model, LayerId layer);

// One expert: gate, up and down, in this order. They move between tiers as one unit.
std::vector<TensorSpec> expert_tensors(const ModelDescription& model, LayerId layer,
                                       ExpertId expert);

}  // namespace klotski
