#pragma once

#include <string>

#include "base/json.h"
#include "session/planning.h"

namespace klotski {

// A plan with its reasons, its predicted times, and changes that would make it faster.
std::string plan_text(const Planning& planning);
Json plan_json(const Planning& planning);

}  // namespace klotski
