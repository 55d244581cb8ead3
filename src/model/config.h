#pragma once

#include <filesystem>
#include <string_view>

#include "base/json.h"
#include "model/description.h"
#include "weights/tensor_source.h"

namespace klotski {

// Reads a config.json (today's form or the older one) with every field checked. `what` names the
// file in errors.
ModelDescription parse_config(std::string_view json_text, std::string_view what);

// The description of a model of GGUF files, from the metadata of the first and the names of the
// tensors.
ModelDescription read_gguf_description(const TensorSource& source);

// The description of a model whose files are open. Refuses (bad_model) quantised weights whose
// columns lie in another order than the model's.
ModelDescription describe_model(const TensorSource& source);

// Reads config.json of a model folder, and the end tokens of generation_config.json.
ModelDescription read_config(const std::filesystem::path& folder);

// Some versions of transformers compute a family otherwise than its publishers do. Makes the
// description compute as this version, to compare results with references that it made; says in one
// sentence what then differs. Empty: nothing does.
std::string_view repeat_fault(ModelDescription& model, std::string_view transformers_version);

}  // namespace klotski
