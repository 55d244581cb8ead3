#pragma once

#include <string>

#include "base/json.h"
#include "kernels/ops.h"
#include "probe/probe.h"
#include "session/opened_model.h"

namespace klotski {

// A model's profile for `klotski doctor`: rates of memory and disk, and of the products of each
// kind of layer by rows.
std::string profile_text(const OpenedModel& model, const Probed& probed);
Json profile_json(const OpenedModel& model, const Probed& probed);

}  // namespace klotski
