#pragma once

#include <optional>
#include <string>
#include <vector>

#include "model/description.h"
#include "tensor/shape.h"

namespace klotski {

// The place of a matrix in a stored tensor that holds several matrices of as many rows, one after
// the other: its first dimension counts them.
struct StoredSlice {
  int64_t matrices = 1;
  int64_t index = 0;      // which of them
  int64_t rows = 0;       // of each of them
  int64_t first_row = 0;  // of the matrix wanted, where it is some rows of that one
  int64_t row_step = 1;   // from one of its rows to the next; 2: rows of another lie between them
};

// A tensor that a description requires of a checkpoint.
struct TensorSpec {
  Role role;
  std::string name;
  Shape shape;
  std::optional<StoredSlice> slice = std::nullopt;  // none: the stored tensor is this one
};

// Embedding, final norm and, unless tied, output projection.
std::vector<TensorSpec> model_tensors(const ModelDescription& model);

// The attention of a layer and the norm before it.
std::vector<TensorSpec> attention_tensors(const ModelDescription& model, LayerId layer);

// What every token uses of a layer's feed-forward part: the norm before it, router, shared expert.
std::vector<TensorSpec> gate_tensors(const ModelDescription& model, LayerId layer);

// One expert: gate, up and down, in this order. They move between tiers as one unit. Names without
// {expert} are of fused tensors: those hold the matrices of all experts of a layer, and where gate
// and up have one name, both of each expert (TensorPattern::interleaved).
std::vector<TensorSpec> expert_tensors(const ModelDescription& model, LayerId layer,
                                       ExpertId expert);

}  // namespace klotski
