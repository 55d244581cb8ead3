#pragma once

#include <optional>
#include <string>
#include <vector>

#include "model/description.h"
#include "tensor/shape.h"

namespace klotski {

// The place of a matrix in a stored tensor whose first dimension counts matrices of as many rows.
struct StoredSlice {
  int64_t matrices = 1;
  int64_t index = 0;      // number of the matrix
  int64_t rows = 0;       // rows of each matrix
  int64_t first_row = 0;  // first row wanted, where only some rows of the matrix are
  // Whether rows of the two halves of each matrix alternate in the file. In memory all rows of the
  // first half come first, and first_row counts them so.
  bool interleaved = false;
  // Whether plain elements lie column by column in the file. In memory they lie in rows.
  bool transposed = false;

  // Whether all of a matrix is read, even where only some of its rows are wanted.
  bool takes_whole_matrix(bool packed) const { return interleaved || (transposed && !packed); }
};

// A tensor that a description requires of a checkpoint. A slice may also be of vectors, whose
// elements count as rows.
struct TensorSpec {
  Role role;
  std::string name;
  Shape shape;
  std::optional<StoredSlice> slice = std::nullopt;  // none: the stored tensor is this one
  // Where the rows are those of as many matrices, a stored tensor may count these in a dimension.
  int64_t stacked = 1;
  // Whether an earlier layer has the stored tensor as well: each has it in its own unit.
  bool repeated = false;
};

// Embedding, final norm and, unless tied, output projection.
std::vector<TensorSpec> model_tensors(const ModelDescription& model);

// The attention of a layer and the norm before it; also the norm before the routed part where that
// part reads the rows that attention reads.
std::vector<TensorSpec> attention_tensors(const ModelDescription& model, LayerId layer);

// Tensors of a layer's feed-forward part that every token uses: the norm before it, router, shared
// expert.
std::vector<TensorSpec> gate_tensors(const ModelDescription& model, LayerId layer);

// One expert: gate, up where it has one, and down, in this order. They move between tiers as one
// unit. Names without {expert} are of fused tensors, which hold the matrices of all experts of a
// layer, and where gate and up have one name, both of each expert (TensorPattern::interleaved).
std::vector<TensorSpec> expert_tensors(const ModelDescription& model, LayerId layer,
                                       ExpertId expert);

}  // namespace klotski
