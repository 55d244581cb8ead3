#pragma once

#include <ostream>

#include "session/planning.h"

namespace klotski {

// The plan as a page: its text, where its operations lie under the machine's roofs, a predicted
// layer to scale, which weights stay in memory. `model` names it. The caller checks the stream.
void write_plan_html(std::ostream& out, const Planning& planning, const std::string& model);

}  // namespace klotski
