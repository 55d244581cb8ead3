#pragma once

// Planned and measured times of earlier runs: history.jsonl in the cache folder (probe.h), a line a
// run. No result depends on the file: a failure to read it is no error.

#include <ctime>
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

// Whether a machine's runs, oldest first, say that a profile measured at that time no longer
// foretells: it is an hour old, and of the newest runs since, at most 20 and at least 5, the median
// generated tokens more than 10 % faster or slower than planned. The hour bounds the time that is
// spent on measuring where not the machine but the prediction is off.
bool runs_contradict_profile(const std::vector<RunRecord>& runs, std::time_t measured,
                             std::time_t now);

}  // namespace klotski
