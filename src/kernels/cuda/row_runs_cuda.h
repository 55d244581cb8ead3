#pragma once

// Rows of several sequences as runs of a few rows of one sequence each, for kernels that work on
// rows of sequences of very different lengths.

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace klotski::cuda {

struct RowRun {
  int64_t sequence;
  int64_t first;  // row of the sequence
  int64_t count;
};

// `count(sequence)` is the number of its rows.
template <typename Sequence, typename Count>
std::vector<RowRun> row_runs(std::span<const Sequence> sequences, int64_t most_rows,
                             const Count& count) {
  std::vector<RowRun> runs;
  for (size_t s = 0; s < sequences.size(); ++s) {
    const int64_t rows = count(sequences[s]);
    for (int64_t first = 0; first < rows; first += most_rows) {
      runs.push_back({static_cast<int64_t>(s), first, std::min(most_rows, rows - first)});
    }
  }
  return runs;
}

}  // namespace klotski::cuda
