#include "tensor/tensor_view.h"

#include <gtest/gtest.h>

#include <vector>

namespace klotski {
namespace {

const std::vector<std::byte> kBytes(4 * 6 * 2);
const TensorView kMatrix = {.data = kBytes.data(), .dtype = DType::BF16, .shape = {4, 6}};

TEST(TensorView, RowsFollowEachOtherUnlessSaid) {
  EXPECT_EQ(kMatrix.stride(), 12);
  EXPECT_FALSE(kMatrix.has_gaps());
  EXPECT_FALSE(TensorView().has_gaps());
}

TEST(TensorView, ColumnsOfAMatrixLieApart) {
  const TensorView some = columns_between(kMatrix, 2, 5);
  EXPECT_EQ(some.data, kBytes.data() + 2 * 2);
  EXPECT_EQ(some.dtype, DType::BF16);
  EXPECT_EQ(some.shape, (Shape{4, 3}));
  EXPECT_EQ(some.stride(), 12);
  EXPECT_TRUE(some.has_gaps());
  EXPECT_FALSE(columns_between(kMatrix, 0, 6).has_gaps());
}

TEST(TensorView, RowsOfAMatrixLieAsTheyDidInIt) {
  const TensorView some = rows_between(kMatrix, 1, 3);
  EXPECT_EQ(some.data, kBytes.data() + 6 * 2);
  EXPECT_EQ(some.shape, (Shape{2, 6}));
  EXPECT_FALSE(some.has_gaps());
}

TEST(TensorView, PartsHaveParts) {
  const TensorView inner =
      columns_between(rows_between(columns_between(kMatrix, 1, 6), 2, 4), 3, 4);
  EXPECT_EQ(inner.data, kBytes.data() + (2 * 6 + 4) * 2);
  EXPECT_EQ(inner.shape, (Shape{2, 1}));
  EXPECT_EQ(inner.stride(), 12);
}

TEST(TensorView, WhatIsNoPartIsRefused) {
  EXPECT_THROW(rows_between(kMatrix, 2, 5), Error);
  EXPECT_THROW(rows_between(kMatrix, -1, 2), Error);
  EXPECT_THROW(columns_between(kMatrix, 3, 2), Error);
  EXPECT_THROW(columns_between(kMatrix, 0, 7), Error);
  TensorView arranged = kMatrix;
  arranged.order = ElementOrder::arranged;
  EXPECT_THROW(columns_between(arranged, 0, 2), Error);
  EXPECT_THROW(rows_between(arranged, 0, 2), Error);
}

}  // namespace
}  // namespace klotski
