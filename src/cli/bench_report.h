#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "cli/measure.h"

namespace klotski {

// One setting: several runs of it, of which the median by time counts.
struct Setting {
  std::string name;
  PipelineFlags flags;
  std::vector<Measurement> runs;

  const Measurement& median() const { return runs[runs.size() / 2]; }
};

Json as_json(const Setting& setting);

// A line a setting, in Markdown.
std::string settings_table(const std::vector<Setting>& settings);

// How well the setting's hot experts were foretold, layer by layer.
std::string accuracy_table(const Setting& setting);

}  // namespace klotski
