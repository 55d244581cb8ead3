#pragma once

// How a model's files hold its tensors: as elements, or in a packed format (tensor/format.h) as the
// tensors that stored_parts() names.

#include <span>
#include <string>
#include <vector>

#include "model/units.h"
#include "tensor/transposition.h"
#include "weights/safetensors_writer.h"
#include "weights/tensor_source.h"

namespace klotski {

// Whether the matrices of a unit may be of any packed format: only experts and dense feed-forward
// parts are read by nothing but products. Other units have formats of files and
// WeightFormat::in_any_unit.
constexpr bool may_be_packed(UnitKind kind) {
  return kind == UnitKind::expert || kind == UnitKind::dense;
}

// Whether a matrix of this shape can be of a packed format and takes fewer bytes than the numbers
// that the format expands to.
bool packing_saves(DType dtype, const Shape& shape);

// The numbers of a matrix as files have them, when it is of this type; of all matrices of the
// stored tensor, where the matrix is a slice of one.
NewTensor tensor_in_file(const TensorSpec& spec, DType dtype);

// Some bytes of a file that are a part of a tensor: all of a stored tensor, or a slice of it.
struct StoredRange {
  uint32_t shard = 0;
  uint64_t offset = 0;  // first byte in the file
  uint64_t bytes = 0;
  // Transpositions, one after the other, that make the bytes rows as kernels read them.
  std::vector<Transposition> turns = {};

  bool operator==(const StoredRange&) const = default;
};

// A tensor of the model in its files.
struct StoredTensor {
  TensorSpec spec;
  DType dtype = DType::F32;
  StoredRange numbers;
  uint64_t first_byte = 0;         // byte of the tensor's first row in `numbers`, once turned
  int64_t first_row = 0;           // row of the side tensors that is the first row's
  std::vector<StoredRange> sides;  // side tensors, in the order of the format
};

// Finds a tensor, as elements or in any packed format; `stated` are the formats that the model's
// configuration states (WeightFormat::is_stated), which count only there. Refuses (bad_model) one
// that is missing or there twice, that has another shape or type than the model's, or one packed in
// a format that tensors of its unit, or vectors, cannot have.
StoredTensor find_stored(const TensorSource& source, UnitKind kind, TensorSpec spec,
                         std::span<const DType> stated = {});

}  // namespace klotski
