#pragma once

// How the rows of a product are divided and rounded up.

#include <algorithm>
#include <bit>
#include <cstdint>

namespace klotski::cuda {

// Rows of each piece but the last, of as few and as even pieces as possible of at most `most` rows.
inline int64_t piece_rows(int64_t rows, int64_t most) {
  const int64_t pieces = (rows + most - 1) / most;
  return pieces == 0 ? 0 : (rows + pieces - 1) / pieces;
}

// The number of rows rounded up, to less than twice as many, to one of few numbers. cuBLAS looks
// for a kernel, and loads it, for each number of rows that is new to it, and every expert has
// another number. Few rows take as long as reading the weights; larger numbers are rounded up by
// less than an eighth.
inline int64_t padded_rows(int64_t rows) {
  constexpr int64_t kFew = 8;
  const auto power = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(rows)));
  const int64_t step = std::max(std::min(power, kFew), power / 16);
  return (rows + step - 1) / step * step;
}

}  // namespace klotski::cuda
