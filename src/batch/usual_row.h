#pragma once

#include <cstdint>

#include "batch/input_file.h"
#include "batch/row.h"

namespace klotski {

// Tokens that rows ask for, on average where nothing else is said.
struct UsualRow {
  int64_t prompt_tokens = 0;
  int64_t generated_tokens = 0;  // at most
  int64_t most_tokens = 0;       // prompt and generated tokens of the longest row
};

// The usual row of the first `most` rows that can be run; all zero where none can. Begins at the
// input's start and returns there.
UsualRow usual_row(InputFile& input, const RowDefaults& defaults, int64_t most = 64);

}  // namespace klotski
