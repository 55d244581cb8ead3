#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/run_inputs.h"
#include "experts/correlation_table.h"
#include "session/opened_model.h"

namespace klotski {

// Limits and choices of a session, as plain data.
struct SessionOptions {
  RunLimits limits;
  PipelineOptions pipeline;      // the session itself sets its source of weights
  std::string device = "auto";   // see open_target
  std::string kernels = "cpu";   // see open_target
  std::string correlation_file;  // correlation table to begin with; empty: an empty table
};

// Refuses (usage) options that contradict each other, whatever the target is.
void check_options(const SessionOptions& options);
// Refuses (usage) options that need a GPU where the target has none.
void check_options_on_target(const SessionOptions& options, const Target& target);

// These options for a session that computes on the CPU alone: options that need a GPU are dropped.
SessionOptions on_cpu(SessionOptions options);

// The ways in which these limits make results differ from the exact model, in words; empty: none.
std::vector<std::string> losses(const RunLimits& limits);

// Reads the correlation table that the options name. Refuses a table of another model (bad file) or
// of another path length than the limits' (usage).
std::optional<CorrelationTable> read_correlation_table(const ModelDescription& model,
                                                       const SessionOptions& options);

}  // namespace klotski
