#pragma once

// Checks of GGUF files: whatever a file says that this program would compute otherwise is refused.

#include <string_view>

#include "base/json.h"
#include "model/description.h"
#include "model/families/families.h"
#include "weights/tensor_source.h"

namespace klotski {

// Refuses keys of rope scaling that no field of a description stands for, where they matter.
// `sharpens`: the family has a field for a factor of the scores.
void check_gguf_rope_scaling(const JsonFields& metadata, std::string_view architecture, bool yarn,
                             bool sharpens);

// Refuses metadata about rope, attention and routing that contradict the description.
void check_gguf_metadata(const JsonFields& metadata, const GgufFamily& family,
                         const ModelDescription& model);

// Refuses a tensor of the description that the files lack, and a tensor of the files that no unit
// of the description reads.
void refuse_unread_tensors(const TensorSource& source, const ModelDescription& model);

}  // namespace klotski
