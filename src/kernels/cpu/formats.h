#pragma once

// How the CPU multiplies by weights of a stored format (tensor/format.h): the only place of this
// folder that chooses code by the type of weights. A format without kernels of its own is expanded,
// some outputs at a time, and multiplied as the numbers that it expands to; F32 numbers are rounded
// where the products round their inputs.

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/kernels.h"
#include "kernels/ops.h"
#include "tensor/tensor_view.h"

namespace klotski::cpu {

// Rows of a matrix of weights, and where they go as numbers of the type of FormatKernel.
struct RowExpansion {
  const TensorView& matrix;
  int64_t first;  // row
  int64_t count;
  std::byte* out;
  int64_t out_stride;  // numbers from one row to the next: expanded_stride()
};

struct FormatKernel {
  WeightType type;  // type of the numbers that rows are multiplied as
  bool plain;       // rows are such numbers, as products read them
  // Whether products read rows of a format that is not plain as they are stored. Null: none do.
  bool (*read_by)(const Products& products);
  void (*expand)(const Kernels& kernels, const RowExpansion& rows);

  bool reads_stored(const Products& products) const {
    return plain || (read_by && read_by(products));
  }
};

// Refuses (internal) a type that no operation reads. `rounded`: the products round inputs to bf16;
// F32 numbers of a packed format are rounded then as well.
const FormatKernel& format_kernel(DType dtype, bool rounded);
// Whether these kernels round inputs to bf16 where the weights are bf16 numbers.
inline bool rounds_inputs(const Kernels& kernels, Precision precision) {
  return kernels.bf16 && precision != Precision::f32;
}

// The WeightType of plain elements: F32, F16 or BF16.
WeightType weight_type(DType dtype);
int64_t element_bytes(WeightType type);

// Elements from one expanded row to the next: an odd number of cache lines, so that rows do not
// crowd into a few sets of a cache, with room for whole blocks of kCompactColumns numbers.
inline int64_t expanded_stride(int64_t width, int64_t element_bytes) {
  return (width + kCompactColumns - 1) / kCompactColumns * kCompactColumns +
         kCacheLine / element_bytes;
}
// The most outputs of a strip of expanded weights, a multiple of kColumnStep: they stay in the
// second-level cache where that is as large.
int64_t most_expanded_outputs(int64_t width, int64_t element_bytes);
// Bytes of a strip of most_expanded_outputs() outputs, of weights no wider than `width`.
int64_t most_expanded_bytes(int64_t width, int64_t element_bytes);

// Bytes of a row of `width` F32 numbers that a thread holds while it rounds rows of this format; 0
// where a kernel of the format rounds them.
int64_t rounding_bytes(DType dtype, int64_t width);

// The kernel of compact rows (tensor/compact.h).
const FormatKernel& compact_kernel();
// The kernel of quantised blocks (tensor/block_formats.h), which become F32 or bf16 numbers; null
// for other types.
const FormatKernel* block_kernel(DType dtype, bool rounded);

}  // namespace klotski::cpu
