#pragma once

// Planned and measured times of earlier runs: history.jsonl in the cache folder (probe.h), a line a
// run. No result depends on the file: a failure to read it is no error.

#include <ctime>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hardware/run_record.h"

namespace klotski {

// Processor, kernels and how many threads compute, as a record's `machine` has them.
std::string machine_name(int threads);

// A time in the form of a record's `when`.
std::string utc_text(std::time_t time);

// Adds a line in one write: lines of several processes do not mix. A file that has grown beyond
// about 1 MiB keeps its newest half; a line that another process adds in that moment may be lost.
// Returns why the line could not be kept; empty where it was.
[[nodiscard]] std::string remember(const RunRecord& record);

// The runs of this machine, oldest first, as far as the newest 2 MiB of the file have them. Lines
// that are broken are skipped.
std::vector<RunRecord> remembered(std::string_view machine);

// Whether a machine's runs, oldest first, say that a profile measured at that time does not
// foretell: in the last two runs since, a lane took a quarter longer or shorter than planned for
// what it did. Or the profile is an hour old, and the newest runs since, at most 20 and at least 5,
// generated tokens more than 10 % faster or slower than planned in the median. Where lanes were off
// before the profile was measured as well, measuring has not helped: then only the hour counts,
// which bounds the time that is spent on measuring where the prediction itself is off.
bool runs_contradict_profile(std::span<const RunRecord> runs, std::time_t measured,
                             std::time_t now);

}  // namespace klotski
