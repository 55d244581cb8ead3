#pragma once

#include <filesystem>
#include <string_view>

#include "base/json.h"
#include "model/description.h"

namespace klotski {

// Reads a config.json (today's form or the older one) with every field checked. `what` names the
// file in errors.
ModelDescription parse_config(std::string_view json_text, std::string_view what);

// Reads config.json of a model folder, and the end tokens of generation_config.json.
ModelDescription read_config(const std::filesystem::path& folder);

}  // namespace klotski
