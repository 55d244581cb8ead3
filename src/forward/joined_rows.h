#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "forward/layer.h"

namespace klotski {

// Rows that attention gave, and as many rows of one of its inputs.
struct JoinedRows {
  Rows output;
  Rows input;
};

// Outputs and input part `part` of the sequences, where rows of neighbouring sequences follow each
// other in memory as one: an operation on whole rows then needs one call for many sequences.
std::vector<JoinedRows> joined_rows(std::span<const AttendingSequence> sequences, size_t part);

}  // namespace klotski
