#include "forward/joined_rows.h"

namespace klotski {

namespace {

bool follows(const Rows& first, const Rows& second) {
  return first.width == second.width && first.row(first.count) == second.data;
}

}  // namespace

std::vector<JoinedRows> joined_rows(std::span<const AttendingSequence> sequences, size_t part) {
  std::vector<JoinedRows> joined;
  for (const AttendingSequence& sequence : sequences) {
    const Rows& output = sequence.output;
    const Rows& input = sequence.inputs.parts[part];
    if (!joined.empty() && follows(joined.back().output, output) &&
        follows(joined.back().input, input)) {
      joined.back().output.count += output.count;
      joined.back().input.count += input.count;
    } else {
      joined.push_back({output, input});
    }
  }
  return joined;
}

}  // namespace klotski
