#include <gtest/gtest.h>

#include <cmath>

#include "kernels/cpu/testing.h"

namespace klotski {
namespace {

TEST(CpuRowwise, RmsNormAgreesWithTheReference) {
  for (const int64_t width : {1, 3, 16, 33, 64, 1001, 4096}) {
    for (const DType dtype : kStoredTypes) {
      constexpr int64_t kRows = 37;
      const std::vector<float> in = random_floats(kRows * width, 1);
      const Weights weight(random_floats(width, 2), dtype, {width});
      const ConstRows rows(in.data(), kRows, width);
      std::vector<float> expected(in.size());
      reference_processor().rms_norm({expected.data(), kRows, width}, rows, weight.view, 1e-5f);
      SameEverywhere same;
      with_every_processor([&](const CpuProcessor& processor) {
        SCOPED_TRACE(testing::Message() << "width " << width << ", " << dtype_name(dtype));
        Output out(kRows, width);
        processor.rms_norm(out.rows(), rows, weight.view, 1e-5f);
        expect_close(out.values(), expected, absolute(expected), kSameInputs);
        EXPECT_TRUE(out.guards_are_whole());
        EXPECT_TRUE(same.holds(processor, out.values()));

        std::vector<float> in_place = in;
        const Rows own = {in_place.data(), kRows, width};
        processor.rms_norm(own, own, weight.view, 1e-5f);
        EXPECT_TRUE(same_bits(in_place, out.values()));

        Output alone(1, width);
        processor.rms_norm(alone.rows(), {rows.row(20), 1, width}, weight.view, 1e-5f);
        EXPECT_TRUE(same_bits(alone.values(), out.values(20, 1)));
      });
    }
  }
}

TEST(CpuRowwise, RmsNormWithoutWeightsIsThatOfOnes) {
  constexpr int64_t kRows = 5;
  constexpr int64_t kWidth = 35;
  const std::vector<float> in = random_floats(kRows * kWidth, 1);
  const Weights ones(std::vector<float>(kWidth, 1.0f), DType::F32, {kWidth});
  const auto expect_equal = [&](const Processor& processor) {
    std::vector<float> expected(in.size());
    std::vector<float> found(in.size());
    const ConstRows rows(in.data(), kRows, kWidth);
    processor.rms_norm({expected.data(), kRows, kWidth}, rows, ones.view, 1e-5f);
    processor.rms_norm({found.data(), kRows, kWidth}, rows, TensorView(), 1e-5f);
    EXPECT_TRUE(same_bits(found, expected));
  };
  expect_equal(reference_processor());
  with_every_processor(expect_equal);
}

TEST(CpuRowwise, LayerNormAgreesWithTheReference) {
  for (const int64_t width : {1, 3, 16, 33, 1001, 4096}) {
    for (const bool biased : {false, true}) {
      constexpr int64_t kRows = 37;
      std::vector<float> in = random_floats(kRows * width, 1);
      for (float& value : in) value += 3.0f;
      const Weights weight(random_floats(width, 2), DType::BF16, {width});
      const Weights bias(random_floats(width, 3), DType::F32, {width});
      const TensorView added = biased ? bias.view : TensorView();
      const ConstRows rows(in.data(), kRows, width);
      std::vector<float> expected(in.size());
      reference_processor().layer_norm({expected.data(), kRows, width}, rows, weight.view, added,
                                       1e-5f);
      std::vector<float> sizes = absolute(expected);
      for (float& size : sizes) size += 10.0f;  // the mean of large numbers is subtracted
      SameEverywhere same;
      with_every_processor([&](const CpuProcessor& processor) {
        SCOPED_TRACE(testing::Message() << "width " << width << ", bias " << biased);
        Output out(kRows, width);
        processor.layer_norm(out.rows(), rows, weight.view, added, 1e-5f);
        expect_close(out.values(), expected, sizes, kSameInputs);
        EXPECT_TRUE(out.guards_are_whole());
        EXPECT_TRUE(same.holds(processor, out.values()));

        std::vector<float> in_place = in;
        const Rows own = {in_place.data(), kRows, width};
        processor.layer_norm(own, own, weight.view, added, 1e-5f);
        EXPECT_TRUE(same_bits(in_place, out.values()));

        Output alone(1, width);
        processor.layer_norm(alone.rows(), {rows.row(20), 1, width}, weight.view, added, 1e-5f);
        EXPECT_TRUE(same_bits(alone.values(), out.values(20, 1)));
      });
    }
  }
}

TEST(CpuRowwise, LayerNormOfAKnownRow) {
  const std::vector<float> in = {1, 2, 3, 6};  // mean 3, variance 3.5
  const Weights weight({1, 2, 1, 1}, DType::F32, {4});
  const Weights bias({0, 0, 0.5f, 0}, DType::F32, {4});
  with_every_processor([&](const CpuProcessor& processor) {
    Output out(1, 4);
    processor.layer_norm(out.rows(), {in.data(), 1, 4}, weight.view, bias.view, 0.0f);
    const float scale = 1.0f / std::sqrt(3.5f);
    expect_close(out.values(), std::vector<float>{-2 * scale, -2 * scale, 0.5f, 3 * scale},
                 std::vector<float>(4, 1.0f), kSameInputs);
  });
}

TEST(CpuRowwise, ScaleMultipliesEveryNumber) {
  const std::vector<float> in = random_floats(1001, 1);
  with_every_processor([&](const CpuProcessor& processor) {
    std::vector<float> out = in;
    processor.scale(out, 0.25f);
    for (size_t i = 0; i < in.size(); ++i) ASSERT_EQ(out[i], in[i] * 0.25f);
    processor.scale({}, 2.0f);
  });
}

TEST(CpuRowwise, WhatIsNotFiniteStaysInItsRow) {
  constexpr int64_t kRows = 9;
  constexpr int64_t kWidth = 35;
  const Weights weight(random_floats(kWidth, 2), DType::F32, {kWidth});
  std::vector<float> in = random_floats(kRows * kWidth, 1);
  std::vector<float> expected(in.size());
  reference_processor().rms_norm({expected.data(), kRows, kWidth}, {in.data(), kRows, kWidth},
                                 weight.view, 1e-5f);
  in[4 * kWidth + 34] = kInfinity;
  with_every_processor([&](const CpuProcessor& processor) {
    Output out(kRows, kWidth);
    processor.rms_norm(out.rows(), {in.data(), kRows, kWidth}, weight.view, 1e-5f);
    for (int64_t row = 0; row < kRows; ++row) {
      if (row == 4) continue;
      const auto right = std::span<const float>(expected).subspan(size_t(row * kWidth), kWidth);
      const std::vector<float> sizes = absolute({right.begin(), right.end()});
      expect_close(out.values(row, 1), right, sizes, kSameInputs);
    }
  });
}

TEST(CpuRowwise, CombineIsThatOfTheReference) {
  for (const int64_t slots : {1, 2, 8}) {
    constexpr int64_t kRows = 37;
    constexpr int64_t kWidth = 1001;
    const std::vector<float> in = random_floats(kRows * kWidth, 1);
    const std::vector<float> parts = random_floats(slots * kRows * kWidth, 2);
    const std::vector<float> shares = random_floats(slots * kRows, 3);
    const ConstRows all(parts.data(), slots * kRows, kWidth);
    std::vector<float> expected = in;
    reference_processor().combine({expected.data(), kRows, kWidth}, all, shares);
    with_every_processor([&](const CpuProcessor& processor) {
      std::vector<float> out = in;
      processor.combine({out.data(), kRows, kWidth}, all, shares);
      EXPECT_TRUE(same_bits(out, expected));
    });
  }
}

TEST(CpuRowwise, NoRowsAreNoWork) {
  const Weights weight(random_floats(2, 1), DType::F32, {2});
  with_every_processor([&](const CpuProcessor& processor) {
    processor.rms_norm({nullptr, 0, 2}, {nullptr, 0, 2}, weight.view, 1e-5f);
    processor.combine({nullptr, 0, 2}, {nullptr, 0, 2}, {});
  });
}

}  // namespace
}  // namespace klotski
