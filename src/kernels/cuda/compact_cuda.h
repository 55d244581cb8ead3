#pragma once

// A matrix of compact rows (tensor/compact.h) in a device's memory.

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "base/error.h"
#include "kernels/cuda/vectors_cuda.h"
#include "tensor/compact.h"
#include "tensor/tensor_view.h"

namespace klotski::cuda {

struct CompactMatrix {
  const std::byte* data;
  int64_t stride;  // bytes from one row to the next
  int64_t rows;
  unsigned columns;
  unsigned first_column;  // columns of the whole row before the matrix's
  unsigned header_bytes;
  unsigned most_listed;

  CompactMatrix() = default;
  explicit CompactMatrix(const TensorView& weight)
      : data(weight.data),
        stride(weight.stride()),
        rows(weight.rows()),
        columns(static_cast<unsigned>(weight.columns())),
        first_column(static_cast<unsigned>(weight.first_column)),
        header_bytes(static_cast<unsigned>(compact_header_bytes(weight.columns_of_row()))),
        most_listed(static_cast<unsigned>(most_compact_listed(weight.columns_of_row()))) {
    if ((reinterpret_cast<uintptr_t>(data) | static_cast<uintptr_t>(stride)) % kCompactAlignment) {
      fail(ErrorKind::internal, "compact rows that are not aligned reached a device's product");
    }
  }
};

// One row of a CompactMatrix. Columns are the matrix's; whatever the bytes are, nothing outside is
// read.
class CompactRow {
 public:
  __device__ CompactRow(const CompactMatrix& matrix, int64_t row)
      : header_(reinterpret_cast<const unsigned*>(matrix.data + row * matrix.stride)),
        blocks_(matrix.data + row * matrix.stride + matrix.header_bytes),
        first_column_(matrix.first_column),
        least_upper_((header_[0] & 0x7F) * 0x01010101u),
        listed_(min(header_[0] >> 16, matrix.most_listed)) {}

  // Eight neighbours, two in each word, as if none were listed; `column` is a multiple of eight.
  __device__ __forceinline__ Packed<unsigned> eight(unsigned column) const {
    constexpr unsigned kBlock = kCompactBlock;
    constexpr unsigned kHalfBlock = kBlock / 2;
    column += first_column_;
    const std::byte* block = blocks_ + column / kBlock * kCompactBlockBytes;
    const unsigned at = column % kBlock;
    const unsigned place = at < kHalfBlock ? 2 * at : 2 * (at - kHalfBlock) + kVector;
    const uint2 lowers = *reinterpret_cast<const uint2*>(block + place);
    const uint2 pairs = *reinterpret_cast<const uint2*>(block + kBlock + place % kHalfBlock);
    const int shift = place < kHalfBlock ? 0 : 4;
    Packed<unsigned> numbers;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const unsigned four = i == 0 ? lowers.x : lowers.y;
      const unsigned upper = uppers((i == 0 ? pairs.x : pairs.y) >> shift);
      // Bytes 0 and 1, then 2 and 3, each after its lower one.
      numbers.values[2 * i] = __byte_perm(four, upper, 0x5140);
      numbers.values[2 * i + 1] = __byte_perm(four, upper, 0x7362);
    }
    return numbers;
  }

  __device__ unsigned listed() const { return listed_; }
  // Column of listed number i; `columns` or more where it is outside the matrix.
  __device__ unsigned listed_at(unsigned i) const {
    return (header_[i + 1] & 0xFFFF) - first_column_;
  }
  __device__ uint16_t listed_number(unsigned i) const {
    return static_cast<uint16_t>(header_[i + 1] >> 16);
  }

 private:
  // The upper bytes of four numbers, of the codes in the lower halves of four bytes.
  __device__ __forceinline__ unsigned uppers(unsigned codes) const {
    return ((codes & 0x07070707u) + least_upper_ & 0x7F7F7F7Fu) | (codes & 0x08080808u) << 4;
  }

  const unsigned* header_;
  const std::byte* blocks_;
  unsigned first_column_;
  unsigned least_upper_;  // four times
  unsigned listed_;
};

}  // namespace klotski::cuda
