#pragma once

#include "base/json.h"
#include "text/jinja/runtime.h"

namespace klotski::jinja {

// A template's variable from JSON, charged to the budget.
Value value_from_json(Runtime& runtime, const OrderedJson& json);

}  // namespace klotski::jinja
