#pragma once

#include <span>

#include "tensor/tensor_view.h"

namespace klotski::reference {

// Element i of a tensor, counted in memory order, as float32. The type must be F32, F16 or BF16.
float load_element(const TensorView& tensor, int64_t i);

// Row `row` of a tensor whose rows are out.size() long.
void load_row(const TensorView& tensor, int64_t row, std::span<float> out);

}  // namespace klotski::reference
