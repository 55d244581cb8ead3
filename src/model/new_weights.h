#pragma once

// The tensors of a model that is written anew: as they are, or in a packed format.

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weights/safetensors_writer.h"
#include "weights/tensor_source.h"

namespace klotski {

struct NewWeight {
  const TensorEntry* entry;  // the tensor in the old files
  DType dtype;               // its type in the new ones: the entry's own, or a packed format

  bool is_packed_anew() const { return dtype != entry->dtype; }
  int64_t columns() const { return entry->shape.back(); }
  int64_t rows() const;  // of all matrices, where the tensor has several
  NewTensor in_file() const;
};

// Refuses (bad_model) files that are not safetensors: only these are written anew.
void require_safetensors(const TensorSource& source);

// All tensors as they are, in the order of TensorSource::tensors().
std::vector<NewWeight> weights_as_they_are(const TensorSource& source);

// Whether a tensor of plain elements can be of a packed format, and takes fewer bytes then.
bool becomes_smaller(const TensorEntry& entry, DType packed);

// Orders weights as they lie in the old files, but tensors whose bytes are no multiple of what rows
// of packed formats are aligned to come last, tensors of the oddest sizes at the very end: so each
// tensor is aligned in its new file.
void order_for_files(std::vector<NewWeight>& weights);

uint64_t bytes_of(const std::vector<NewWeight>& weights);
std::vector<NewTensor> in_files(const std::vector<NewWeight>& weights);

// Tensors that were left as they were, and why.
struct CountedReason {
  int64_t count;
  std::string_view why;
};
// "2 not BF16, 3 no smaller when compact": the reasons that have a count.
std::string counted_reasons(std::initializer_list<CountedReason> reasons);

// Reads rows of a tensor from row `row` on, as many as `out` has room for, as they are in the file.
void read_rows(const TensorSource& source, const TensorEntry& entry, int64_t row,
               std::span<std::byte> out);

// How far numbers are from those that they were made of.
struct SquaredErrors {
  double error = 0.0;  // sum of squared differences
  double norm = 0.0;   // sum of squared numbers

  void add(const SquaredErrors& other) {
    error += other.error;
    norm += other.norm;
  }
  double relative() const;  // of the Frobenius norm; 0 where all numbers are zero
};

// Makes bytes of a tensor from byte `offset` of its new form on: as they are in the old file, or
// whole rows of one that is packed anew. Every row is expanded again and compared. Refuses
// (bad_model) numbers that the format cannot hold.
SquaredErrors make_bytes(const TensorSource& source, const NewWeight& weight, uint64_t offset,
                         std::span<std::byte> out);

}  // namespace klotski
