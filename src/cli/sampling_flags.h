#pragma once

#include <functional>
#include <vector>

#include "cli/command.h"
#include "engine/sampling.h"

namespace klotski {

// Adds --temperature, --top-p and the other options of sampling. Each given option appends a change
// to `changes`, which must live as long as the command.
void add_sampling_flags(CLI::App& command,
                        std::vector<std::function<void(SamplingOptions&)>>& changes);

}  // namespace klotski
