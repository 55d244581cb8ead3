// Products with a matrix for each head, against the reference on every processor.

#include <gtest/gtest.h>

#include "kernels/cpu/head_products_testing.h"
#include "tensor/testing.h"

namespace klotski {
namespace {

TEST(CpuHeadProducts, AgreeWithTheReference) {
  unsigned seed = 0;
  for (const HeadShape& shape : head_shapes()) {
    for (const DType dtype : kStoredTypes) {
      const HeadCase one(shape, dtype, ++seed);
      const auto exact = one.reference(one.in, one.weight.view, Precision::f32);
      const auto sizes = one.reference(absolute(one.in), one.sizes.view, Precision::f32);
      with_every_processor([&](const CpuProcessor& processor) {
        for (const Precision precision : kPrecisions) {
          SCOPED_TRACE(testing::Message() << shape << ", " << dtype_name(dtype));
          Output out(shape.tokens, one.out_width());
          processor.matmul_by_head(one.arguments(out.rows(), one.in, one.weight.view, precision));
          const bool rounded = rounds(processor, dtype, precision) && !shape.transposed;
          expect_close(out.values(), exact, sizes, rounded ? kRoundedInputs : kSameInputs);
          EXPECT_TRUE(out.guards_are_whole());
        }
      });
    }
  }
}

TEST(CpuHeadProducts, ReadCompactWeights) {
  for (const bool transposed : {false, true}) {
    const HeadShape shape{5, 2, 100, 30, 70, 128, 4, transposed};
    const HeadCase one(shape, kCompactType, 7);
    const auto exact = one.reference(one.in, one.weight.view, Precision::f32);
    const auto sizes = one.reference(absolute(one.in), one.sizes.view, Precision::f32);
    with_every_processor([&](const CpuProcessor& processor) {
      Output out(shape.tokens, one.out_width());
      processor.matmul_by_head(one.arguments(out.rows(), one.in, one.weight.view, Precision::f32));
      expect_close(out.values(), exact, sizes, kSameInputs);
    });
  }
}

// A format whose scales lie in a side tensor, by rows of the whole matrix: each head finds its own.
TEST(CpuHeadProducts, ReadScalesOfTheirOwnRows) {
  for (const bool transposed : {false, true}) {
    const HeadCase one({5, 3, 50, 20, 30, 64, 2, transposed}, DType::F32, 9);
    const testing_formats::DrillMatrix packed(random_floats(150 * 64, 10), {150, 64});
    const Weights expanded(testing_formats::expanded(packed.view()), DType::F32, {150, 64});
    const auto exact = one.reference(one.in, expanded.view, Precision::f32);
    EXPECT_TRUE(same_bits(one.reference(one.in, packed.view(), Precision::f32), exact));
    const auto sizes = one.reference(
        absolute(one.in),
        Weights(absolute(testing_formats::expanded(packed.view())), DType::F32, {150, 64}).view,
        Precision::f32);
    with_every_processor([&](const CpuProcessor& processor) {
      Output out(5, one.out_width());
      processor.matmul_by_head(one.arguments(out.rows(), one.in, packed.view(), Precision::f32));
      expect_close(out.values(), exact, sizes, kSameInputs);
    });
  }
}

TEST(CpuHeadProducts, ATokenDoesNotDependOnTheOthers) {
  for (const HeadShape& shape : head_shapes()) {
    for (const DType dtype : kStoredTypes) {
      const HeadCase all(shape, dtype, 11);
      with_every_processor([&](const CpuProcessor& processor) {
        for (const Precision precision : kPrecisions) {
          Output together(shape.tokens, all.out_width());
          processor.matmul_by_head(
              all.arguments(together.rows(), all.in, all.weight.view, precision));
          const int64_t token = shape.tokens - 1;
          Output alone(1, all.out_width());
          HeadProducts single = all.arguments(alone.rows(), all.in, all.weight.view, precision);
          single.in = {single.in.row(token), 1, single.in.width};
          processor.matmul_by_head(single);
          EXPECT_TRUE(same_bits(alone.values(), together.values(token, 1))) << shape;
        }
      });
    }
  }
}

// The definition of the operation: a matmul for each head, of the head's columns.
TEST(ReferenceHeadProducts, AreMatmulsOfEachHead) {
  const HeadShape shape{4, 3, 10, 2, 7, 6, 0, false};
  const HeadCase one(shape, DType::F32, 3);
  const auto found = one.reference(one.in, one.weight.view, Precision::f32);
  for (int64_t head = 0; head < shape.heads; ++head) {
    const auto in = columns_of(one.in, one.in_width(), head * 6, head * 6 + 6);
    const TensorView rows = rows_between(one.weight.view, head * 10 + 2, head * 10 + 9);
    std::vector<float> expected(static_cast<size_t>(shape.tokens * 7));
    reference_processor().matmul({expected.data(), shape.tokens, 7}, {in.data(), shape.tokens, 6},
                                 rows, {}, Precision::f32);
    EXPECT_EQ(columns_of(found, one.out_width(), head * 7, head * 7 + 7), expected);
  }
}

// Multiplied by the rows of a matrix and then by its columns, <x, W y> = <W^T x, y>.
TEST(ReferenceHeadProducts, TransposedIsTheAdjoint) {
  const HeadShape rows{1, 2, 8, 1, 5, 9, 0, false};
  HeadShape columns = rows;
  columns.transposed = true;
  const HeadCase by_rows(rows, DType::F32, 5);
  HeadCase by_columns(columns, DType::F32, 5);
  const auto wide = by_rows.reference(by_rows.in, by_rows.weight.view, Precision::f32);
  const auto narrow = by_columns.reference(by_columns.in, by_rows.weight.view, Precision::f32);
  double first = 0;
  double second = 0;
  for (size_t i = 0; i < wide.size(); ++i) first += double(wide[i]) * by_columns.in[i];
  for (size_t i = 0; i < narrow.size(); ++i) second += double(narrow[i]) * by_rows.in[i];
  EXPECT_NEAR(first, second, 1e-4);
}

}  // namespace
}  // namespace klotski
