#pragma once

#include <string>

#include "base/json.h"
#include "session/planning.h"

namespace klotski {

// A plan with its reasons, what it should take, and what would make it faster.
std::string plan_text(const Planning& planning);
Json plan_json(const Planning& planning);

}  // namespace klotski
