#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tensor/dtype.h"

namespace klotski {

// Elements along each dimension, outermost first, none negative. Empty for a single element.
using Shape = std::vector<int64_t>;

// The product of the dimensions, or false where it does not fit 64 bits.
[[nodiscard]] bool element_count(const Shape& shape, uint64_t* elements);

// Bytes of a tensor without gaps, or false where they do not fit 64 bits or end inside a byte;
// where the type is a packed format also if the shape cannot be of it. Side tensors do not count.
[[nodiscard]] bool byte_count(const Shape& shape, DType dtype, uint64_t* bytes);

std::string format_shape(const Shape& shape);  // "[4096, 14336]"

}  // namespace klotski
