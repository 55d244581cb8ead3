#pragma once

#include <cstdint>
#include <span>

#include "forward/buffer.h"
#include "kernels/ops.h"

namespace klotski {

// A vector of weights of any type as floats, in the memory of the operations.
inline List<float> floats_of(const Processor& ops, const TensorView& vector, int64_t size) {
  List<float> values(ops, size);
  const TokenId first_row = 0;
  const List<TokenId> row(ops, std::span(&first_row, 1));
  ops.embed({values.span().data(), 1, size}, vector, row.span());
  return values;
}

}  // namespace klotski
