#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "kernels/cpu/head_products_testing.h"
#include "kernels/cuda/testing.h"
#include "tensor/testing.h"

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

// Blocks whose numbers BF16 cannot hold: rounded with rounded inputs only.
TEST_F(GpuHeadProducts, ReadQuantisedBlocks) {
  const Shape shape = {200, 64};
  const NoiseBits noise = format_of(DType::Q8_0).noise;
  std::vector<std::byte> bytes(static_cast<size_t>(200 * bytes_per_row(DType::Q8_0, 64)));
  std::mt19937_64 random(8);
  for (size_t i = 0; i < bytes.size(); i += 8) {
    const uint64_t eight = (random() & noise.random) | noise.fixed;
    std::memcpy(bytes.data() + i, &eight, std::min<size_t>(8, bytes.size() - i));
  }
  const TensorView blocks{.data = bytes.data(), .dtype = DType::Q8_0, .shape = shape};
  const Weights sizes(absolute(testing_formats::expanded(blocks)), DType::F32, shape);
  const DeviceArray<std::byte> device{std::span<const std::byte>(bytes)};
  TensorView there = blocks;
  there.data = device.data();
  for (const bool transposed : {false, true}) {
    const HeadCase one({5, 2, 100, 30, 70, 64, 4, transposed}, DType::F32, 7);
    const auto magnitudes = one.reference(absolute(one.in), sizes.view, Precision::f32);
    const DeviceArray<float> in{std::span<const float>(one.in)};
    for (const Precision precision : kEveryPrecision) {
      const DeviceOutput out(one.shape.tokens, one.out_width());
      HeadProducts products = one.arguments(out.rows(), one.in, there, precision);
      products.in.data = in.data();
      ops().matmul_by_head(products);
      expect_close(out.download(), one.reference(one.in, blocks, precision), magnitudes, 3e-5);
    }
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
