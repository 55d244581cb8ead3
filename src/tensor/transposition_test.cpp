#include "tensor/transposition.h"

#include <gtest/gtest.h>

#include <vector>

namespace klotski {
namespace {

// Bytes of a matrix whose elements differ from their neighbours.
std::vector<std::byte> numbered(const Transposition& matrix) {
  std::vector<std::byte> data(matrix.bytes());
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<std::byte>(i % 251 + i / 251);
  return data;
}

void expect_transposed(const Transposition& matrix) {
  SCOPED_TRACE(testing::Message() << matrix.rows << " x " << matrix.columns << " of "
                                  << matrix.element_bytes << " bytes");
  const std::vector<std::byte> before = numbered(matrix);
  std::vector<std::byte> after = before;
  transpose(matrix, after.data());
  for (int64_t row = 0; row < matrix.rows; ++row) {
    for (int64_t column = 0; column < matrix.columns; ++column) {
      for (int64_t byte = 0; byte < matrix.element_bytes; ++byte) {
        const int64_t from = (row * matrix.columns + column) * matrix.element_bytes + byte;
        const int64_t to = (column * matrix.rows + row) * matrix.element_bytes + byte;
        ASSERT_EQ(after[static_cast<size_t>(to)], before[static_cast<size_t>(from)])
            << "row " << row << ", column " << column;
      }
    }
  }
}

TEST(Transposition, MatricesOfAnyShapeAndElement) {
  for (const int64_t bytes : {1, 2, 4, 8, 90}) {
    for (const int64_t rows : {1, 2, 7, 64, 96, 130}) {
      for (const int64_t columns : {1, 2, 5, 64, 128, 97})
        expect_transposed({rows, columns, bytes});
    }
  }
}

// Rows of two matrices that alternate: all rows of the first come first.
TEST(Transposition, WideElements) {
  expect_transposed({48, 2, 1536});
  expect_transposed({3, 2, 20000});
  expect_transposed({2, 31, 9000});
}

}  // namespace
}  // namespace klotski
