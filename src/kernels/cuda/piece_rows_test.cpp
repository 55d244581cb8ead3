#include "kernels/cuda/piece_rows.h"

#include <gtest/gtest.h>

#include <set>

namespace klotski::cuda {
namespace {

TEST(PieceRows, EvenPiecesCoverAllRows) {
  EXPECT_EQ(piece_rows(0, 100), 0);
  for (int64_t rows = 1; rows <= 1000; ++rows) {
    const int64_t piece = piece_rows(rows, 100);
    const int64_t pieces = (rows + piece - 1) / piece;
    EXPECT_LE(piece, 100) << rows;
    EXPECT_EQ(pieces, (rows + 99) / 100) << rows;
    EXPECT_GT(rows - (pieces - 1) * piece, piece - pieces) << rows << ": the last is too small";
  }
}

TEST(PieceRows, PaddingIsSmall) {
  EXPECT_EQ(padded_rows(0), 0);
  for (int64_t rows = 1; rows <= 5000; ++rows) {
    const int64_t padding = padded_rows(rows) - rows;
    EXPECT_GE(padding, 0) << rows;
    EXPECT_LT(padding, rows) << rows;
    if (rows >= 64) {
      EXPECT_LT(8 * padding, rows) << rows;
    }
    EXPECT_EQ(padded_rows(rows + padding), rows + padding) << rows;
    EXPECT_GE(padded_rows(rows + 1), rows + padding) << rows;
  }
}

TEST(PieceRows, PaddedNumbersAreFew) {
  std::set<int64_t> numbers;
  for (int64_t rows = 1; rows <= 1024; ++rows) numbers.insert(padded_rows(rows));
  EXPECT_LE(numbers.size(), 43u);
  EXPECT_EQ(*numbers.begin(), 1);  // one sequence pays nothing
  EXPECT_EQ(*numbers.rbegin(), 1024);
}

}  // namespace
}  // namespace klotski::cuda
