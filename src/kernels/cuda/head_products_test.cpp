#include <gtest/gtest.h>

#include "kernels/cpu/head_products_testing.h"
#include "kernels/cuda/testing.h"

namespace klotski {
namespace {

using GpuHeadProducts = GpuTest;

constexpr Precision kEveryPrecision[] = {Precision::f32, Precision::two_bf16, Precision::bf16};

void check_on_device(const Processor& ops, const HeadCase& one, Precision precision) {
  SCOPED_TRACE(testing::Message() << one.shape << ", " << dtype_name(one.dtype) << ", precision "
                                  << static_cast<int>(precision));
  const DeviceArray<float> in{std::span<const float>(one.in)};
  const DeviceTensor weight(one.weight);
  const DeviceOutput out(one.shape.tokens, one.out_width());
  HeadProducts products = one.arguments(out.rows(), one.in, weight.view(), precision);
  products.in.data = in.data();
  ops.matmul_by_head(products);
  const auto sizes = one.reference(absolute(one.in), one.sizes.view, Precision::f32);
  expect_close(out.download(), one.reference(one.in, one.weight.view, precision), sizes, 3e-5);
}

TEST_F(GpuHeadProducts, AgreeWithTheReference) {
  std::vector<HeadShape> shapes = head_shapes();
  shapes.push_back({1, 16, 256, 0, 128, 512, 64, true});    // queries of latent attention
  shapes.push_back({9, 16, 256, 128, 128, 512, 0, false});  // and its values
  shapes.push_back({700, 16, 64, 0, 32, 512, 32, true});    // more tokens than fit the scratch
  unsigned seed = 0;
  for (const HeadShape& shape : shapes) {
    for (const DType dtype : kStoredTypes) {
      const HeadCase one(shape, dtype, ++seed);
      for (const Precision precision : kEveryPrecision) {
        check_on_device(ops(), one, precision);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_F(GpuHeadProducts, ReadCompactWeights) {
  for (const bool transposed : {false, true}) {
    const HeadCase one({5, 2, 100, 30, 70, 128, 4, transposed}, kCompactType, 7);
    for (const Precision precision : kEveryPrecision) check_on_device(ops(), one, precision);
  }
}

TEST_F(GpuHeadProducts, NoTokensAreNoWork) {
  const HeadCase one({1, 2, 8, 0, 8, 16, 0, false}, DType::BF16, 3);
  const DeviceTensor weight(one.weight);
  HeadProducts none =
      one.arguments({nullptr, 0, one.out_width()}, one.in, weight.view(), Precision::f32);
  none.in = {nullptr, 0, one.in_width()};
  ops().matmul_by_head(none);
  ops().memory.finish();
}

}  // namespace
}  // namespace klotski
