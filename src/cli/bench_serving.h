#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "cli/bench_settings.h"
#include "session/session.h"

namespace klotski {

// Adds --arrivals and the options that go with it. The options must live as long as the command.
void add_serving_flags(CLI::App& command, BenchOptions& options);

// Refuses (usage) options that --arrivals needs where it is not given, and those of prompts of one
// length where it is.
void check_serving_flags(const CLI::App& command, const BenchOptions& options);

struct ServingReport {
  std::string markdown;
  Json json;
};

// Replays the arrivals that the options name under each of the settings, round by round. Refuses
// (internal) tokens that differ between settings on the CPU.
ServingReport serving_report(const BenchOptions& options, const std::vector<Setting>& settings,
                             Session& session);

}  // namespace klotski
