#pragma once

#include <cstdint>
#include <optional>

#include "batch/batch_job.h"
#include "batch/input_file.h"
#include "batch/usual_row.h"
#include "session/session.h"

namespace klotski {

// Rows of a job as a plan needs to know them before all of them were read as tokens.
struct BatchRows {
  InputSize size;
  UsualRow usual;
  int64_t max_tokens = 256;  // generated for a row that does not say
  std::optional<int64_t> context =
      {};  // most tokens of a row, prompt and answer; none: by its size
};

// Room for the longest row of the job, and work as its usual rows make it.
Workload workload_of(const BatchRows& rows, const ModelDescription& model);

// Plans the session for the rows by prediction and loads it; returns the workload that it planned
// for. Where the longest row does not fit, the plan is made for average rows: longer ones become
// error rows.
Workload load_for_batch(Session& session, const BatchRows& rows);

// The window of a policy: enough rows wait in the engine that a whole group always finds some to
// choose from.
BatchWindow window_for(const Policy& policy, const UsualRow& usual);

}  // namespace klotski
