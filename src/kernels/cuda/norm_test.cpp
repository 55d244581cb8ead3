#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "kernels/cuda/testing.h"

namespace klotski {
namespace {

using GpuNorm = GpuTest;
using GpuEmbed = GpuTest;

constexpr float kEpsilon = 1e-5f;

std::vector<float> by_reference(ConstRows in, const Weights& weight) {
  std::vector<float> out(static_cast<size_t>(in.count * in.width), kPoison);
  reference_processor().rms_norm({out.data(), in.count, in.width}, in, weight.view, kEpsilon);
  return out;
}

// Compares norms. Both sides sum float32 numbers, in different orders.
void expect_norm(std::span<const float> found, std::span<const float> expected) {
  expect_close(found, expected, absolute({expected.begin(), expected.end()}), 3e-5);
}

TEST_F(GpuNorm, AgreesWithTheReference) {
  for (const int64_t width : {1, 5, 64, 128, 1000, 1024, 1025, 1032, 4096, 7168, 7171}) {
    for (const int64_t rows : {0, 1, 3, 9, 70}) {
      for (const DType dtype : kStoredTypes) {
        SCOPED_TRACE(std::to_string(rows) + " rows of " + std::to_string(width));
        const std::vector<float> x = random_floats(rows * width, 1);
        const Weights weight(random_floats(width, 2), dtype, {width});
        const DeviceArray<float> in{std::span<const float>(x)};
        const DeviceTensor w(weight);
        const DeviceOutput out(rows, width);
        ops().rms_norm(out.rows(), {in.data(), rows, width}, w.view(), kEpsilon);
        expect_norm(out.download(), by_reference({x.data(), rows, width}, weight));
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_F(GpuNorm, WithoutWeightsIsThatOfOnes) {
  for (const int64_t width : {16, 1032}) {
    const std::vector<float> x = random_floats(7 * width, 1);
    const Weights ones(std::vector<float>(static_cast<size_t>(width), 1.0f), DType::F32, {width});
    const DeviceArray<float> in{std::span<const float>(x)};
    const DeviceOutput out(7, width);
    ops().rms_norm(out.rows(), {in.data(), 7, width}, TensorView(), kEpsilon);
    expect_norm(out.download(), by_reference({x.data(), 7, width}, ones));
  }
}

TEST_F(GpuNorm, LayerNormAgreesWithTheReference) {
  for (const int64_t width : {1, 5, 64, 1000, 1024, 1025, 4096, 7171}) {
    for (const bool biased : {false, true}) {
      SCOPED_TRACE(testing::Message() << "width " << width << ", bias " << biased);
      constexpr int64_t kRows = 9;
      std::vector<float> x = random_floats(kRows * width, 1);
      for (float& value : x) value += 1.0f;
      const Weights weight(random_floats(width, 2), DType::BF16, {width});
      const Weights bias(random_floats(width, 3), DType::BF16, {width});
      std::vector<float> expected(x.size(), kPoison);
      reference_processor().layer_norm({expected.data(), kRows, width}, {x.data(), kRows, width},
                                       weight.view, biased ? bias.view : TensorView(), kEpsilon);
      const DeviceArray<float> in{std::span<const float>(x)};
      const DeviceTensor w(weight);
      const DeviceTensor b(bias);
      const DeviceOutput out(kRows, width);
      ops().layer_norm(out.rows(), {in.data(), kRows, width}, w.view(),
                       biased ? b.view() : TensorView(), kEpsilon);
      std::vector<float> sizes = absolute(expected);
      for (float& size : sizes) size += 5.0f;  // the mean of large numbers is subtracted
      expect_close(out.download(), expected, sizes, 3e-5);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(GpuNorm, MayWriteOverItsInput) {
  for (const int64_t width : {128, 4096}) {
    const std::vector<float> x = random_floats(7 * width, 1);
    const Weights weight(random_floats(width, 2), DType::BF16, {width});
    const DeviceArray<float> in{std::span<const float>(x)};
    const DeviceTensor w(weight);
    const DeviceOutput apart(7, width);
    ops().rms_norm(apart.rows(), {in.data(), 7, width}, w.view(), kEpsilon);
    ops().rms_norm({in.data(), 7, width}, {in.data(), 7, width}, w.view(), kEpsilon);
    EXPECT_TRUE(same_bits(in.download(), apart.download()));
  }
}

TEST_F(GpuNorm, LeavesNumbersBehindTheWeightAsTheyAre) {
  for (const int64_t width : {5, 32, 512, 1536}) {
    for (const int64_t more : {3, 64}) {
      const std::vector<float> x = random_floats(7 * (width + more), 1);
      const Weights weight(random_floats(width, 2), DType::BF16, {width});
      const DeviceArray<float> rows{std::span<const float>(x)};
      const DeviceTensor w(weight);
      const Rows all{rows.data(), 7, width + more};
      ops().rms_norm(all, all, w.view(), kEpsilon);
      std::vector<float> expected = x;
      const Rows host{expected.data(), 7, width + more};
      reference_processor().rms_norm(host, host, weight.view, kEpsilon);
      expect_norm(rows.download(), expected);
    }
  }
}

TEST_F(GpuNorm, ARowDependsOnNothingElse) {
  for (const int64_t width : {136, 2048}) {
    const std::vector<float> x = random_floats(20 * width + 1, 3);
    const Weights weight(random_floats(width, 2), DType::F32, {width});
    const DeviceArray<float> in{std::span<const float>(x)};
    const DeviceTensor w(weight);
    const DeviceOutput all(20, width);
    ops().rms_norm(all.rows(), {in.data() + 1, 20, width}, w.view(), kEpsilon);
    // Alone, and where it can be read 16 bytes at a time.
    const DeviceArray<float> last{std::span<const float>(x).last(static_cast<size_t>(width))};
    const DeviceOutput alone(1, width);
    ops().rms_norm(alone.rows(), {last.data(), 1, width}, w.view(), kEpsilon);
    const std::vector<float> rows = all.download();
    EXPECT_TRUE(same_bits(alone.download(), std::span(rows).last(static_cast<size_t>(width))));
  }
}

TEST_F(GpuEmbed, CopiesTheRowsOfTokens) {
  for (const int64_t width : {1, 7, 64, 2056, 5000}) {
    for (const DType dtype : kStoredTypes) {
      const Weights table(random_floats(50 * width, 1), dtype, {50, width});
      const std::vector<TokenId> tokens = {49, 0, 3, 3, 17};
      const DeviceTensor device_table(table);
      const DeviceArray<TokenId> device_tokens{std::span<const TokenId>(tokens)};
      const DeviceOutput out(5, width);
      ops().embed(out.rows(), device_table.view(), device_tokens.span());
      std::vector<float> expected(static_cast<size_t>(5 * width), kPoison);
      reference_processor().embed({expected.data(), 5, width}, table.view, tokens);
      EXPECT_TRUE(same_bits(out.download(), expected)) << width;
    }
  }
}

TEST_F(GpuEmbed, NoTokensAreNoWork) {
  const Weights table(random_floats(8, 1), DType::BF16, {2, 4});
  const DeviceTensor device_table(table);
  ops().embed({nullptr, 0, 4}, device_table.view(), {});
  ops().memory.finish();
}

}  // namespace
}  // namespace klotski
