#pragma once

// Checks of GGUF files: whatever a file says that this program would compute otherwise is refused.

#include <string_view>

#include "base/json.h"
#include "model/description.h"
#include "model/families/families.h"
#include "weights/tensor_source.h"

namespace klotski {

// Tensors of factors of rope, a number for each rotated pair.
inline constexpr std::string_view kGgufFactors = "rope_freqs.weight";
inline constexpr std::string_view kGgufShortFactors = "rope_factors_short.weight";
inline constexpr std::string_view kGgufLongFactors = "rope_factors_long.weight";

// Refuses keys of rope scaling that no field of a description stands for, where they matter.
// `sharpens`: the family has a field for a factor of the scores.
void check_gguf_rope_scaling(const GgufModel& files, bool yarn, bool sharpens);

// Refuses metadata about rope, attention and routing that contradict the description.
void check_gguf_metadata(const GgufModel& files, const ModelDescription& model);

// Refuses a tensor of the description that the files lack, and a tensor of the files that nothing
// reads: neither a unit of the description nor its rope, and no layer that predicts further tokens.
void refuse_unread_tensors(const GgufModel& files, const ModelDescription& model);

}  // namespace klotski
