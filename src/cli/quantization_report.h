#pragma once

#include <string>

#include "base/json.h"
#include "model/unit_layout.h"
#include "session/opened_model.h"

namespace klotski {

// The quantised matrices of a model and their errors, by layer and role; null where the model has
// no record of them.
Json quantization_info(const OpenedModel& model, const UnitLayouts& layouts);

// quantization_info() for people: a line for the model, and one a layer.
std::string quantization_text(const Json& info);

}  // namespace klotski
