#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "kernels/cuda/testing.h"

namespace klotski {
namespace {

using GpuMatmul = GpuTest;

constexpr Precision kAllPrecisions[] = {Precision::f32, Precision::two_bf16, Precision::bf16};

struct Product {
  int64_t rows, in, out;
};

// How far an output may be off, relative to the magnitude of its products.
double tolerance(DType weights, Precision precision) {
  constexpr double kSums = 3e-5;  // the order of float32 sums
  if (weights == DType::F16 && precision == Precision::bf16) return 1e-3;  // inputs in 11 bits
  return kSums;
}

std::vector<float> on_device(const Processor& ops, ConstRows in, const Weights& weight,
                             const Weights* bias, Precision precision) {
  const DeviceArray<float> x(
      std::span<const float>(in.data, static_cast<size_t>(in.count * in.width)));
  const DeviceTensor w(weight);
  const DeviceOutput out(in.count, weight.view.rows());
  if (bias) {
    const DeviceTensor b(*bias);
    ops.matmul(out.rows(), {x.data(), in.count, in.width}, w.view(), b.view(), precision);
  } else {
    ops.matmul(out.rows(), {x.data(), in.count, in.width}, w.view(), {}, precision);
  }
  return out.download();
}

std::vector<float> by_reference(ConstRows in, const Weights& weight, const Weights* bias,
                                Precision precision) {
  std::vector<float> out(static_cast<size_t>(in.count * weight.view.rows()), kPoison);
  reference_processor().matmul({out.data(), in.count, weight.view.rows()}, in, weight.view,
                               bias ? bias->view : TensorView{}, precision);
  return out;
}

void check_product(const Processor& ops, const Product& shape, DType dtype, Precision precision) {
  SCOPED_TRACE(std::to_string(shape.rows) + " x " + std::to_string(shape.in) + " -> " +
               std::to_string(shape.out) + " " + std::string(dtype_name(dtype)) + " precision " +
               std::to_string(static_cast<int>(precision)));
  const std::vector<float> x = random_floats(shape.rows * shape.in, 1);
  const std::vector<float> w = random_floats(shape.out * shape.in, 2);
  const std::vector<float> b = random_floats(shape.out, 3);
  const Weights weight(w, dtype, {shape.out, shape.in});
  const DType bias_type = is_packed(dtype) ? DType::BF16 : dtype;
  const Weights bias(b, bias_type, {shape.out});
  const Weights sizes(absolute(w), dtype, {shape.out, shape.in});
  const Weights bias_sizes(absolute(b), bias_type, {shape.out});
  const std::vector<float> x_sizes = absolute(x);
  const ConstRows in(x.data(), shape.rows, shape.in);
  for (const bool biased : {false, true}) {
    const auto found = on_device(ops, in, weight, biased ? &bias : nullptr, precision);
    const auto expected = by_reference(in, weight, biased ? &bias : nullptr, precision);
    const auto magnitudes = by_reference({x_sizes.data(), shape.rows, shape.in}, sizes,
                                         biased ? &bias_sizes : nullptr, Precision::f32);
    expect_close(found, expected, magnitudes, tolerance(dtype, precision));
  }
}

TEST_F(GpuMatmul, AgreesWithTheReference) {
  const Product shapes[] = {{1, 1, 1},    {1, 8, 300},  {3, 5, 7},      {17, 33, 65},
                            {5, 40, 257}, {64, 72, 64}, {33, 136, 300}, {130, 136, 520}};
  for (const Product& shape : shapes) {
    for (const DType dtype : kStoredTypes) {
      for (const Precision precision : kAllPrecisions) {
        check_product(ops(), shape, dtype, precision);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_F(GpuMatmul, WorksThroughManyRowsInPieces) {
  for (const DType dtype : {DType::BF16, DType::F16}) {
    for (const Precision precision : kAllPrecisions) {
      check_product(ops(), {4101, 24, 264}, dtype, precision);
    }
  }
}

TEST_F(GpuMatmul, ConvertsLargeWeightsInSlabs) {
  // 16384 x 1030 float32 numbers are more than one slab.
  check_product(ops(), {2, 1030, 16384}, DType::F16, Precision::f32);
}

// Up to four rows are multiplied where the weights lie, five are not.
TEST_F(GpuMatmul, FewRowsAgreeWithTheReference) {
  for (const DType dtype : {DType::F16, DType::BF16, kCompactType}) {
    for (const Precision precision : kAllPrecisions) {
      for (int64_t rows = 1; rows <= 5; ++rows) {
        check_product(ops(), {rows, 1000, 333}, dtype, precision);
        check_product(ops(), {rows, 1003, 70}, dtype, precision);
      }
    }
  }
}

// Of more rows than kFewRows, which are multiplied in another order where weights are compact.
TEST_F(GpuMatmul, CompactWeightsGiveTheSameBits) {
  const Product shapes[] = {{5, 8, 300},    {6, 5, 7},        {17, 33, 65},   {64, 72, 64},
                            {33, 136, 300}, {130, 1000, 520}, {70, 2048, 768}};
  for (const Product& shape : shapes) {
    const std::vector<float> x = random_floats(shape.rows * shape.in, 1);
    const std::vector<float> w = random_floats(shape.out * shape.in, 2);
    const Weights plain(w, DType::BF16, {shape.out, shape.in});
    const Weights compact(w, kCompactType, {shape.out, shape.in});
    const Weights bias(random_floats(shape.out, 3), DType::BF16, {shape.out});
    const ConstRows in(x.data(), shape.rows, shape.in);
    for (const Precision precision : kAllPrecisions) {
      EXPECT_TRUE(same_bits(on_device(ops(), in, compact, &bias, precision),
                            on_device(ops(), in, plain, &bias, precision)))
          << shape.rows << " x " << shape.in << " -> " << shape.out << " precision "
          << static_cast<int>(precision);
    }
  }
}

TEST_F(GpuMatmul, LargeCompactWeightsAreMultipliedInSlabs) {
  // 5120 x 4096 numbers are more than one slab, and 5125 leave a last one that is smaller.
  for (const Product& shape : {Product{2, 4096, 5125}, Product{130, 4096, 5120}}) {
    const std::vector<float> x = random_floats(shape.rows * shape.in, 1);
    const std::vector<float> x_sizes = absolute(x);
    const std::vector<float> w = random_floats(shape.out * shape.in, 2);
    const Weights plain(w, DType::BF16, {shape.out, shape.in});
    const Weights compact(w, kCompactType, {shape.out, shape.in});
    const Weights sizes(absolute(w), DType::BF16, {shape.out, shape.in});
    const ConstRows in(x.data(), shape.rows, shape.in);
    const auto magnitudes =
        on_device(ops(), {x_sizes.data(), shape.rows, shape.in}, sizes, nullptr, Precision::f32);
    for (const Precision precision : kAllPrecisions) {
      expect_close(on_device(ops(), in, compact, nullptr, precision),
                   on_device(ops(), in, plain, nullptr, precision), magnitudes,
                   tolerance(DType::BF16, precision));
    }
  }
}

TEST_F(GpuMatmul, PartsOfCompactWeights) {
  constexpr int64_t kWhole = 264;
  const std::vector<float> x = random_floats(5 * 100, 1);
  const std::vector<float> w = random_floats(310 * kWhole, 2);
  const std::vector<float> rows(w.begin() + 3 * kWhole, w.begin() + 303 * kWhole);
  const Weights plain(columns_of(rows, kWhole, 64, 164), DType::BF16, {300, 100});
  const DeviceTensor whole(Weights(w, kCompactType, {310, kWhole}));
  const TensorView part = columns_between(rows_between(whole.view(), 3, 303), 64, 164);
  const DeviceArray<float> device_x{std::span<const float>(x)};
  for (const Precision precision : kAllPrecisions) {
    const DeviceOutput out(5, 300);
    ops().matmul(out.rows(), {device_x.data(), 5, 100}, part, {}, precision);
    EXPECT_TRUE(
        same_bits(out.download(), on_device(ops(), {x.data(), 5, 100}, plain, nullptr, precision)));
  }
}

TEST_F(GpuMatmul, FewOutputsOfManyRows) {
  for (const DType dtype : kStoredTypes) {
    check_product(ops(), {301, 520, 64}, dtype, Precision::f32);
    check_product(ops(), {4099, 37, 5}, dtype, Precision::f32);
    check_product(ops(), {77, 64, 256}, dtype, Precision::f32);
  }
}

TEST_F(GpuMatmul, RowsOfFewOutputsDoNotDependOnTheirCompany) {
  const std::vector<float> x = random_floats(301 * 520, 4);
  const Weights weight(random_floats(64 * 520, 5), DType::BF16, {64, 520});
  const auto all = on_device(ops(), {x.data(), 301, 520}, weight, nullptr, Precision::f32);
  for (const int64_t row : {0, 7, 300}) {
    const auto alone =
        on_device(ops(), {x.data() + row * 520, 1, 520}, weight, nullptr, Precision::f32);
    EXPECT_TRUE(same_bits(alone, std::span(all).subspan(static_cast<size_t>(row * 64), 64)));
  }
}

TEST_F(GpuMatmul, TheSameCallGivesTheSameBits) {
  const std::vector<float> x = random_floats(70 * 2048, 6);
  const Weights weight(random_floats(768 * 2048, 7), DType::BF16, {768, 2048});
  const ConstRows in(x.data(), 70, 2048);
  for (const Precision precision : kAllPrecisions) {
    const auto first = on_device(ops(), in, weight, nullptr, precision);
    EXPECT_TRUE(same_bits(first, on_device(ops(), in, weight, nullptr, precision)));
  }
}

TEST_F(GpuMatmul, ReadsRowsThatBeginAnywhere) {
  constexpr int64_t kWidth = 264;
  const std::vector<float> x = random_floats(3 * kWidth + 1, 8);
  const Weights weight(random_floats(300 * kWidth, 9), DType::BF16, {300, kWidth});
  const DeviceArray<float> device_x{std::span<const float>(x)};
  const DeviceTensor w(weight);
  for (const Precision precision : kAllPrecisions) {
    const DeviceOutput out(3, 300);
    ops().matmul(out.rows(), {device_x.data() + 1, 3, kWidth}, w.view(), {}, precision);
    const ConstRows in(x.data() + 1, 3, kWidth);
    EXPECT_TRUE(same_bits(out.download(), on_device(ops(), in, weight, nullptr, precision)));
  }
}

TEST_F(GpuMatmul, BiasOfAnotherType) {
  const std::vector<float> x = random_floats(4 * 16, 1);
  const Weights weight(random_floats(300 * 16, 2), DType::BF16, {300, 16});
  const ConstRows in(x.data(), 4, 16);
  for (const DType dtype : kStoredTypes) {
    const Weights bias(random_floats(300, 3), dtype, {300});
    const auto found = on_device(ops(), in, weight, &bias, Precision::bf16);
    const auto expected = by_reference(in, weight, &bias, Precision::bf16);
    for (size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-3);
  }
}

TEST_F(GpuMatmul, AnInfinityStaysOne) {
  std::vector<float> x(3 * 8, 1.0f);
  x[3] = kInfinity;
  x[8 + 5] = -kInfinity;
  x[16] = kPoison;
  const Weights weight(std::vector<float>(300 * 8, 0.5f), DType::BF16, {300, 8});
  for (const Precision precision : kAllPrecisions) {
    const auto out = on_device(ops(), {x.data(), 3, 8}, weight, nullptr, precision);
    for (size_t n = 0; n < 300; ++n) {
      EXPECT_EQ(out[n], kInfinity);
      EXPECT_EQ(out[300 + n], -kInfinity);
      EXPECT_TRUE(std::isnan(out[600 + n]));
    }
  }
}

TEST_F(GpuMatmul, F16InputsAreHeldWithinTheirRange) {
  const std::vector<float> x = {1e6f, -1e30f, 2.0f, 0.0f};
  const Weights weight(std::vector<float>(300 * 1, 0.5f), DType::F16, {300, 1});
  const auto out = on_device(ops(), {x.data(), 4, 1}, weight, nullptr, Precision::bf16);
  for (size_t n = 0; n < 300; ++n) {
    EXPECT_EQ(out[n], 32752.0f);
    EXPECT_EQ(out[300 + n], -32752.0f);
    EXPECT_EQ(out[600 + n], 1.0f);
    EXPECT_EQ(out[900 + n], 0.0f);
  }
}

TEST_F(GpuMatmul, NoRowsAreNoWork) {
  const Weights weight(random_floats(16, 2), DType::BF16, {4, 4});
  EXPECT_TRUE(on_device(ops(), {nullptr, 0, 4}, weight, nullptr, Precision::bf16).empty());
  ops().memory.finish();
}

}  // namespace
}  // namespace klotski
