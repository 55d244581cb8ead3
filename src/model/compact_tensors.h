#pragma once

// How a model's files hold tensors of BF16_COMPACT (tensor/compact.h): as bytes, U8 of shape
// [rows, bytes of a row], under the tensor's name with kCompactSuffix after it. Programs that know
// only the plain name say that it is missing, rather than misread it.

#include <string_view>

#include "model/tensors.h"
#include "model/units.h"
#include "weights/safetensors_writer.h"

namespace klotski {

inline constexpr std::string_view kCompactSuffix = ".compact";

// Only what experts and dense feed-forward parts are made of may be compact.
constexpr bool may_be_compact(UnitKind kind) {
  return kind == UnitKind::expert || kind == UnitKind::dense;
}

// Whether a BF16 tensor of this shape can be compact and takes fewer bytes then.
bool compact_saves(const Shape& shape);

// A tensor of the model as its files have it, when it is of this type.
NewTensor tensor_in_file(const TensorSpec& spec, DType dtype);

}  // namespace klotski
