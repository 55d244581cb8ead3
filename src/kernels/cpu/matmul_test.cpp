#include <gtest/gtest.h>

#include "kernels/cpu/testing.h"

namespace klotski {
namespace {

struct MatmulShape {
  int64_t rows, in, out;
};

std::ostream& operator<<(std::ostream& to, const MatmulShape& shape) {
  return to << shape.rows << " rows, " << shape.in << " to " << shape.out;
}

// A product and the reference's results.
struct MatmulCase {
  MatmulShape shape;
  DType dtype;
  std::vector<float> in;
  Weights weight;
  Weights bias;
  std::vector<float> exact;       // inputs as they are
  std::vector<float> rounded;     // inputs rounded to bf16
  std::vector<float> magnitudes;  // magnitudes of the sums' terms

  MatmulCase(const MatmulShape& s, DType type, bool with_bias, unsigned seed)
      : shape(s),
        dtype(type),
        in(random_floats(s.rows * s.in, seed)),
        weight(random_floats(s.out * s.in, seed + 1), type, {s.out, s.in}),
        bias(with_bias ? random_floats(s.out, seed + 2) : std::vector<float>(), type, {s.out}) {
    if (!with_bias) bias.view = {};
    exact = reference(in, weight.view, bias.view, Precision::f32);
    rounded = reference(in, weight.view, bias.view, Precision::bf16);
    const Weights sizes(absolute(random_floats(s.out * s.in, seed + 1)), type, {s.out, s.in});
    const Weights offsets(absolute(random_floats(s.out, seed + 2)), type, {s.out});
    magnitudes = reference(absolute(in), sizes.view, with_bias ? offsets.view : TensorView(),
                           Precision::f32);
  }

  std::vector<float> reference(const std::vector<float>& inputs, const TensorView& weights,
                               const TensorView& offsets, Precision precision) const {
    std::vector<float> out(static_cast<size_t>(shape.rows * shape.out));
    reference_processor().matmul({out.data(), shape.rows, shape.out},
                                 {inputs.data(), shape.rows, shape.in}, weights, offsets,
                                 precision);
    return out;
  }

  void check(const CpuProcessor& processor, Precision precision) const {
    Output out(shape.rows, shape.out);
    processor.matmul(out.rows(), {in.data(), shape.rows, shape.in}, weight.view, bias.view,
                     precision);
    const bool rounding = rounds(processor, dtype, precision);
    expect_close(out.values(), rounding ? rounded : exact, magnitudes, kSameInputs);
    expect_close(out.values(), exact, magnitudes, kRoundedInputs);
    EXPECT_TRUE(out.guards_are_whole());
  }
};

TEST(CpuMatmul, AgreesWithTheReference) {
  std::vector<MatmulShape> shapes = {
      {1, 1, 1},      {2, 3, 15},    {3, 31, 17},    {4, 33, 129},   {5, 512, 9},   {7, 513, 33},
      {15, 1030, 40}, {16, 511, 17}, {17, 1024, 33}, {32, 31, 1},    {33, 100, 70}, {512, 33, 15},
      {513, 3, 33},   {9, 4200, 21}, {600, 1, 300},  {600, 1030, 1}, {64, 130, 300}};
  std::mt19937 random(17);
  const std::vector<int64_t> widths = {1, 3, 31, 33, 511, 513, 1030};
  const std::vector<int64_t> outputs = {1, 15, 17, 33, 129, 300};
  while (shapes.size() < 28) {
    const MatmulShape shape = {up_to(random, 600), widths[random() % 7], outputs[random() % 6]};
    if (shape.rows * shape.in * shape.out < 3'000'000) shapes.push_back(shape);
  }
  unsigned seed = 0;
  for (const MatmulShape& shape : shapes) {
    for (const DType dtype : kStoredTypes) {
      ++seed;
      const MatmulCase product(shape, dtype, seed % 2 == 0, seed);
      with_every_processor([&](const CpuProcessor& processor) {
        for (const Precision precision : kPrecisions) {
          SCOPED_TRACE(testing::Message() << shape << ", " << dtype_name(dtype)
                                          << (precision == Precision::bf16 ? ", rounded" : ""));
          product.check(processor, precision);
          if (testing::Test::HasFatalFailure()) return;
        }
      });
    }
  }
}

// Two parts keep 16 bits of an input's 24: the error of a product is at most 2^-16 of it.
TEST(CpuMatmul, InputsInTwoPartsAreNearlyExact) {
  for (const MatmulShape& shape :
       std::vector<MatmulShape>{{1, 33, 17}, {17, 513, 40}, {300, 130, 33}}) {
    for (const DType dtype : kStoredTypes) {
      const MatmulCase product(shape, dtype, true, 5);
      const std::vector<float> expected = product.reference(product.in, product.weight.view,
                                                            product.bias.view, Precision::two_bf16);
      with_every_processor([&](const CpuProcessor& processor) {
        Output out(shape.rows, shape.out);
        processor.matmul(out.rows(), {product.in.data(), shape.rows, shape.in}, product.weight.view,
                         product.bias.view, Precision::two_bf16);
        expect_close(out.values(), expected, product.magnitudes, 2e-5);
        expect_close(out.values(), product.exact, product.magnitudes, 2e-5);
      });
    }
  }
}

// Rows `first` to `first + count - 1` of a product.
Output product_of(const CpuProcessor& processor, const std::vector<float>& in,
                  const Weights& weight, std::pair<int64_t, int64_t> rows, Precision precision) {
  const int64_t width = weight.view.columns();
  Output out(rows.second, weight.view.rows());
  processor.matmul(out.rows(), {in.data() + rows.first * width, rows.second, width}, weight.view,
                   {}, precision);
  return out;
}

TEST(CpuMatmul, ARowIsTheSameInAnyCompany) {
  std::mt19937 random(3);
  for (const MatmulShape& shape :
       std::vector<MatmulShape>{{530, 17, 37}, {70, 700, 133}, {40, 1537, 300}, {20, 2100, 37}}) {
    const std::vector<float> in = random_floats(shape.rows * shape.in, 1);
    for (const auto& [dtype, precision] :
         std::vector<std::pair<DType, Precision>>{{DType::F32, Precision::f32},
                                                  {DType::F16, Precision::bf16},
                                                  {DType::BF16, Precision::f32},
                                                  {DType::BF16, Precision::two_bf16},
                                                  {DType::BF16, Precision::bf16}}) {
      const Weights weight(random_floats(shape.out * shape.in, 2), dtype, {shape.out, shape.in});
      SameEverywhere same;
      with_every_processor([&, dt = dtype, p = precision](const CpuProcessor& processor) {
        SCOPED_TRACE(testing::Message() << shape << ", " << dtype_name(dt));
        const Output all = product_of(processor, in, weight, {0, shape.rows}, p);
        ASSERT_TRUE(same.holds(processor, all.values()));
        int64_t rows = 0;
        for (int64_t first = 0; first < shape.rows; first += rows) {
          rows = std::min(up_to(random, random() % 3 == 0 ? 1 : 40), shape.rows - first);
          const Output some = product_of(processor, in, weight, {first, rows}, p);
          ASSERT_TRUE(same_bits(some.values(), all.values(first, rows)))
              << rows << " rows from " << first;
        }
      });
    }
  }
}

TEST(CpuMatmul, SomeColumnsOfAMatrixAreTheSameBitsAsACopyOfThem) {
  struct Columns {
    int64_t width, begin, end;
  };
  constexpr int64_t kOutputs = 45;
  for (const Columns& columns : std::vector<Columns>{{64, 0, 32},
                                                     {64, 32, 64},
                                                     {77, 5, 6},
                                                     {77, 13, 77},
                                                     {1700, 37, 1661},
                                                     {2200, 0, 2100}}) {
    const int64_t width = columns.width;
    const int64_t begin = columns.begin;
    const int64_t end = columns.end;
    const int64_t count = end - begin;
    const std::vector<float> numbers = random_floats(kOutputs * width, 2);
    for (const DType dtype : kStoredTypes) {
      const Weights whole(only_columns(numbers, width, begin, end), dtype, {kOutputs, width});
      const Weights copy(columns_of(numbers, width, begin, end), dtype, {kOutputs, count});
      const TensorView part = columns_between(whole.view, begin, end);
      for (const int64_t rows : {1, 3, 16, 130}) {
        const std::vector<float> in = random_floats(rows * count, static_cast<unsigned>(rows));
        with_every_processor([&](const CpuProcessor& processor) {
          for (const Precision precision : {Precision::f32, Precision::two_bf16, Precision::bf16}) {
            const ConstRows inputs(in.data(), rows, count);
            Output expected(rows, kOutputs);
            Output found(rows, kOutputs);
            processor.matmul(expected.rows(), inputs, copy.view, {}, precision);
            processor.matmul(found.rows(), inputs, part, {}, precision);
            ASSERT_TRUE(same_bits(found.values(), expected.values()))
                << rows << " rows, columns " << begin << " to " << end << " of " << width;
          }
        });
      }
    }
  }
}

TEST(CpuMatmul, WhatIsNotFiniteStaysInItsRowAndItsOutput) {
  for (const MatmulShape& shape :
       std::vector<MatmulShape>{{3, 5, 3}, {16, 33, 18}, {21, 67, 40}, {50, 530, 35}}) {
    const std::vector<float> in = random_floats(shape.rows * shape.in, 1);
    const std::vector<float> numbers = random_floats(shape.out * shape.in, 2);
    for (const DType dtype : kStoredTypes) {
      const Weights weight(numbers, dtype, {shape.out, shape.in});
      for (const float bad : {kInfinity, -kInfinity, kPoison}) {
        const int64_t bad_row = shape.rows / 2;
        const int64_t bad_output = shape.out / 2;
        std::vector<float> spoilt = in;
        spoilt[static_cast<size_t>(bad_row * shape.in + shape.in - 1)] = bad;
        std::vector<float> spoilt_numbers = numbers;
        spoilt_numbers[static_cast<size_t>(bad_output * shape.in)] = bad;
        const Weights spoilt_weight(spoilt_numbers, dtype, {shape.out, shape.in});
        with_every_processor([&](const CpuProcessor& processor) {
          SCOPED_TRACE(testing::Message() << shape << ", " << dtype_name(dtype) << ", " << bad);
          for (const Precision precision : {Precision::f32, Precision::two_bf16, Precision::bf16}) {
            const Output clean = product_of(processor, in, weight, {0, shape.rows}, precision);
            const Output found =
                product_of(processor, spoilt, spoilt_weight, {0, shape.rows}, precision);
            for (int64_t row = 0; row < shape.rows; ++row) {
              for (size_t n = 0; n < static_cast<size_t>(shape.out); ++n) {
                const float value = found.values(row, 1)[n];
                if (row == bad_row || n == static_cast<size_t>(bad_output)) {
                  ASSERT_FALSE(std::isfinite(value)) << "row " << row << ", output " << n;
                } else {
                  ASSERT_EQ(value, clean.values(row, 1)[n]) << "row " << row << ", output " << n;
                }
              }
            }
          }
        });
      }
    }
  }
}

TEST(CpuMatmul, NoRowsAreNoWork) {
  const Weights weight(random_floats(6, 1), DType::BF16, {2, 3});
  with_every_processor([&](const CpuProcessor& processor) {
    for (const Precision precision : kPrecisions) {
      processor.matmul({nullptr, 0, 2}, {nullptr, 0, 3}, weight.view, {}, precision);
    }
  });
}

}  // namespace
}  // namespace klotski
