#pragma once

// Runs that write a model's folder and go on where an interrupted run ended.

#include <cstdint>
#include <string>

#include "weights/new_folder.h"

namespace klotski {

// Makes the files of a new folder those of this run. `identity` is all that the bytes of its shards
// depend on, as text: where an earlier run had another, its files are removed; where it had the
// same, all but its shards and its record (kQuantizationFile). Returns the bytes of the shards
// left.
uint64_t take_over_files(NewFolder& folder, const std::string& identity);

// Publishes the folder, without what only later runs needed.
void publish_run(NewFolder& folder);

}  // namespace klotski
