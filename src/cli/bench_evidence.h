#pragma once

#include <vector>

#include "base/json.h"
#include "session/session.h"

namespace klotski {

// Figures of the runs of each setting.
using RunsOfSettings = std::vector<std::vector<double>>;

// The fields of a results file that tell where its figures come from, as
// tools/performance_tables.py asks for them: `commit`, `command`, `machine`, `repetitions` and
// `spread`, which is that of the setting that varied most, from the lowest figure to the highest in
// percent of the median.
Json evidence_of(const RunsOfSettings& runs, const Session& session);

}  // namespace klotski
