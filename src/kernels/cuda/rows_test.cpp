#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <vector>

#include "kernels/cuda/testing.h"

namespace klotski {
namespace {

using GpuRows = GpuTest;

TEST_F(GpuRows, AddIsExact) {
  for (const int64_t count : {1, 7, 8, 9, 1000, 300001}) {
    for (const int64_t offset : {0, 1, 4}) {
      const std::vector<float> a = random_floats(count + offset, 1);
      const std::vector<float> b = random_floats(count, 2);
      std::vector<float> expected = a;
      reference_processor().add({expected.data() + offset, count, 1}, {b.data(), count, 1});
      const DeviceArray<float> out{std::span<const float>(a)};
      const DeviceArray<float> in{std::span<const float>(b)};
      ops().add({out.data() + offset, count, 1}, {in.data(), count, 1});
      EXPECT_TRUE(same_bits(out.download(), expected)) << count << " at " << offset;
    }
  }
}

TEST_F(GpuRows, ScaleIsExact) {
  for (const int64_t count : {1, 7, 8, 300001}) {
    const std::vector<float> in = random_floats(count, 1);
    std::vector<float> expected = in;
    reference_processor().scale(expected, 0.3f);
    const DeviceArray<float> out{std::span<const float>(in)};
    ops().scale(out.span(), 0.3f);
    EXPECT_TRUE(same_bits(out.download(), expected)) << count;
  }
}

TEST_F(GpuRows, GatherCopiesRows) {
  const std::vector<int32_t> rows = {6, 0, 6, 3, 2};
  for (const int64_t width : {1, 9, 64, 2055, 4096}) {
    const std::vector<float> from = random_floats(7 * width, 3);
    std::vector<float> expected(static_cast<size_t>(5 * width), kPoison);
    reference_processor().gather({expected.data(), 5, width}, {from.data(), 7, width}, rows);
    const DeviceArray<float> in{std::span<const float>(from)};
    const DeviceArray<int32_t> device_rows{std::span<const int32_t>(rows)};
    const DeviceOutput out(5, width);
    ops().gather(out.rows(), {in.data(), 7, width}, device_rows.span());
    EXPECT_TRUE(same_bits(out.download(), expected)) << width;
  }
}

using Scatter = void (Processor::*)(Rows, ConstRows, std::span<const int32_t>) const;

// Expects the reference's bits in all rows, untouched rows included.
void expect_scattered_alike(const Processor& ops, Scatter scatter) {
  const std::vector<int32_t> rows = {6, 0, 3, 2};
  for (const int64_t width : {1, 9, 64, 2055, 4096}) {
    const std::vector<float> from = random_floats(4 * width, 3);
    const std::vector<float> before = random_floats(8 * width, 4);
    std::vector<float> expected = before;
    (reference_processor().*scatter)({expected.data(), 8, width}, {from.data(), 4, width}, rows);
    const DeviceArray<float> in{std::span<const float>(from)};
    const DeviceArray<int32_t> device_rows{std::span<const int32_t>(rows)};
    const DeviceArray<float> out{std::span<const float>(before)};
    (ops.*scatter)({out.data(), 8, width}, {in.data(), 4, width}, device_rows.span());
    EXPECT_TRUE(same_bits(out.download(), expected)) << width;
  }
}

TEST_F(GpuRows, ScatterCopiesRowsAndLeavesTheOthers) {
  expect_scattered_alike(ops(), &Processor::scatter);
}

TEST_F(GpuRows, ScatterAddAddsToRowsAndLeavesTheOthers) {
  expect_scattered_alike(ops(), &Processor::scatter_add);
}

TEST_F(GpuRows, ScatterIsTheInverseOfGather) {
  constexpr int64_t kRows = 1500;
  constexpr int64_t kWidth = 40;
  std::vector<int32_t> rows(kRows);
  std::iota(rows.begin(), rows.end(), 0);
  std::shuffle(rows.begin(), rows.end(), std::mt19937(5));
  const std::vector<float> from = random_floats(kRows * kWidth, 6);
  const DeviceArray<float> in{std::span<const float>(from)};
  const DeviceArray<int32_t> device_rows{std::span<const int32_t>(rows)};
  const DeviceOutput gathered(kRows, kWidth);
  const DeviceOutput back(kRows, kWidth);
  ops().gather(gathered.rows(), {in.data(), kRows, kWidth}, device_rows.span());
  ops().scatter(back.rows(), gathered.rows(), device_rows.span());
  EXPECT_TRUE(same_bits(back.download(), from));
}

TEST_F(GpuRows, CombineAddsSlotsInTheirOrder) {
  for (const int64_t top_k : {1, 2, 8}) {
    for (const int64_t width : {1, 9, 64, 4096}) {
      constexpr int64_t kTokens = 13;
      const std::vector<float> before = random_floats(kTokens * width, 1);
      const std::vector<float> from = random_floats(kTokens * top_k * width, 2);
      const std::vector<float> weights = random_floats(kTokens * top_k, 3);
      std::vector<float> expected = before;
      reference_processor().combine({expected.data(), kTokens, width},
                                    {from.data(), kTokens * top_k, width}, weights);
      const DeviceArray<float> out{std::span<const float>(before)};
      const DeviceArray<float> in{std::span<const float>(from)};
      const DeviceArray<float> device_weights{std::span<const float>(weights)};
      ops().combine({out.data(), kTokens, width}, {in.data(), kTokens * top_k, width},
                    device_weights.span());
      EXPECT_TRUE(same_bits(out.download(), expected)) << top_k << " choices of " << width;
    }
  }
}

TEST_F(GpuRows, EachRowIsScaled) {
  for (const int64_t width : {1, 9, 64, 4096}) {
    constexpr int64_t kRows = 13;
    std::vector<float> values = random_floats(kRows * width, 1);
    const std::vector<float> factors = random_floats(kRows, 2);
    const DeviceArray<float> device{std::span<const float>(values)};
    const DeviceArray<float> device_factors{std::span<const float>(factors)};
    ops().scale_rows({device.data(), kRows, width}, device_factors.span());
    reference_processor().scale_rows({values.data(), kRows, width}, factors);
    EXPECT_TRUE(same_bits(device.download(), values)) << width;
  }
}

TEST_F(GpuRows, ClipKeepsWithinTheLimit) {
  std::vector<float> values = random_floats(1003, 4);
  values[17] = kInfinity;
  values[1002] = -kInfinity;
  const DeviceArray<float> device{std::span<const float>(values)};
  ops().clip(device.span(), 0.5f);
  reference_processor().clip(values, 0.5f);
  EXPECT_EQ(device.download(), values);
  const std::vector<float> nan = {kPoison, 3.0f};
  const DeviceArray<float> device_nan{std::span<const float>(nan)};
  ops().clip(device_nan.span(), 0.5f);
  EXPECT_TRUE(std::isnan(device_nan.download()[0]));
  EXPECT_EQ(device_nan.download()[1], 0.5f);
}

TEST_F(GpuRows, SigmoidIsTheReferences) {
  std::vector<float> values = random_floats(1003, 5);
  for (float& value : values) value *= 10.0f;
  values[0] = 200.0f;
  values[1] = -200.0f;
  const DeviceArray<float> device{std::span<const float>(values)};
  ops().sigmoid(device.span());
  reference_processor().sigmoid(values);
  expect_close(device.download(), values, std::vector<float>(values.size(), 1.0f), 1e-6);
}

TEST_F(GpuRows, NothingToDoIsDone) {
  ops().add({nullptr, 0, 4}, {nullptr, 0, 4});
  ops().gather({nullptr, 0, 4}, {nullptr, 0, 4}, {});
  ops().scatter({nullptr, 0, 4}, {nullptr, 0, 4}, {});
  ops().scatter_add({nullptr, 0, 4}, {nullptr, 0, 4}, {});
  ops().combine({nullptr, 0, 4}, {nullptr, 0, 4}, {});
  ops().scale_rows({nullptr, 0, 4}, {});
  ops().clip({}, 1.0f);
  ops().sigmoid({});
  ops().memory.finish();
}

}  // namespace
}  // namespace klotski
