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

// The attention of a layer and the norm before it.
std::vector<TensorSpec> attention_tensors(const ModelDescription& model, LayerId layer);

// What every token uses of a layer's feed-forward part: the norm before it, router, shared expert.
std::vector<TensorSpec> gate_tensors(const ModelDescription& model, LayerId layer);

// One expert: gate, up and down, in this order. They move between tiers as one unit.
std::vector<TensorSpec> expert_tensors(const ModelDescription& model, LayerId layer,
                                       ExpertId expert);

}  // namespace klotski
