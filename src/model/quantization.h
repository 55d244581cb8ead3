#pragma once

// The quantised formats of a safetensors checkpoint (tensor/checkpoint_formats.h), as config.json
// states them for all families alike.

#include <span>
#include <vector>

#include "base/json.h"
#include "tensor/dtype.h"
#include "weights/tensor_source.h"

namespace klotski {

// The formats that matrices may have by `quantization_config`; empty where config.json has none.
// Matrices that the configuration leaves unquantised lie in the files as elements, and are found as
// such. Refuses (bad_model) methods, bit widths, group sizes and layouts that are no format here.
std::vector<DType> stated_formats(const JsonFields& config);

// Refuses (bad_model) tensors that put columns in groups in another order than their own: act-order
// of GPTQ and compressed-tensors. Reads the tensors that say so, four bytes a column.
void check_column_order(const TensorSource& source, std::span<const DType> stated);

}  // namespace klotski
