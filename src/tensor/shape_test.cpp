#include "tensor/shape.h"

#include <gtest/gtest.h>

#include "tensor/tensor_view.h"

namespace klotski {
namespace {

TEST(Shape, CountsElementsAndBytes) {
  uint64_t count = 0;
  ASSERT_TRUE(element_count({}, &count));
  EXPECT_EQ(count, 1u);
  ASSERT_TRUE(element_count({3, 0, 7}, &count));
  EXPECT_EQ(count, 0u);
  ASSERT_TRUE(byte_count({3, 5}, DType::BF16, &count));
  EXPECT_EQ(count, 30u);
  ASSERT_TRUE(byte_count({4}, DType::F6_E2M3, &count));
  EXPECT_EQ(count, 3u);
}

TEST(Shape, SeesOverflowNegativesAndPartBytes) {
  uint64_t count = 0;
  EXPECT_FALSE(element_count({int64_t{1} << 32, int64_t{1} << 32}, &count));
  EXPECT_FALSE(element_count({-1}, &count));
  EXPECT_FALSE(byte_count({int64_t{1} << 62}, DType::F64, &count));
  EXPECT_FALSE(byte_count({3}, DType::F4, &count));
  EXPECT_FALSE(byte_count({2}, DType::F6_E3M2, &count));
}

TEST(Shape, Prints) {
  EXPECT_EQ(format_shape({}), "[]");
  EXPECT_EQ(format_shape({4096, 14336}), "[4096, 14336]");
}

TEST(TensorView, RowsAndColumnsAreForMatrices) {
  TensorView view;
  view.shape = {2, 3};
  EXPECT_EQ(view.rows(), 2);
  EXPECT_EQ(view.columns(), 3);
  view.shape = {6};
  EXPECT_THROW(view.rows(), Error);
}

}  // namespace
}  // namespace klotski
