#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "cli/bench_settings.h"

namespace klotski {

Json as_json(const Setting& setting);

// A table in Markdown with a line for each setting.
std::string settings_table(const std::vector<Setting>& settings);

// A table in Markdown: the share of the setting's prefetched experts that were used, layer by
// layer.
std::string accuracy_table(const Setting& setting);

// Refuses (internal) tokens that differ: strategies may differ in time, never in the tokens they
// generate. A device rounds the sums of a row differently where other rows are computed with it, so
// that nearly equal logits may change places: there only the runs of one setting must be equal, and
// the text says how many sequences of each setting equal those of the first. `one_work`: all
// settings had equal prompts.
std::string compared_output(const std::vector<Setting>& settings, bool on_device, bool one_work);

}  // namespace klotski
