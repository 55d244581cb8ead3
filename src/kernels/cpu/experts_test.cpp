#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "kernels/cpu/experts_testing.h"

namespace klotski {
namespace {

TEST(CpuExperts, AgreeWithTheReference) {
  const std::vector<ExpertShape> shapes = {{1, 1, 1},     {3, 15, 31},  {31, 33, 17},
                                           {33, 129, 15}, {130, 64, 1}, {513, 40, 129}};
  const std::vector<Activation> activations = {Activation::silu, Activation::gelu,
                                               Activation::gelu_tanh, Activation::relu};
  unsigned seed = 0;
  for (const ExpertShape& shape : shapes) {
    for (const auto& [first, second] : std::vector<std::pair<DType, DType>>{
             {DType::F32, DType::F32}, {DType::F16, DType::BF16}, {DType::BF16, DType::BF16}}) {
      const Expert expert(shape, first, second, ++seed * 10);
      const Activation activation = activations[seed % 4];
      const int64_t rows = std::vector<int64_t>{1, 16, 35}[(seed + seed / 3) % 3];
      const std::vector<float> in = random_floats(rows * shape.in, seed);
      std::vector<ExpectedRow> exact;
      std::vector<ExpectedRow> rounded;
      for (int64_t row = 0; row < rows; ++row) {
        const auto input = std::span(in).subspan(size_t(row * shape.in), size_t(shape.in));
        exact.emplace_back(expert, input, activation, Precision::f32);
        rounded.emplace_back(expert, input, activation, Precision::bf16);
      }
      with_every_processor([&, type = second](const CpuProcessor& processor) {
        for (const Precision precision : kPrecisions) {
          SCOPED_TRACE(testing::Message() << rows << " rows, case " << seed);
          Output out(rows, shape.out);
          const ExpertProduct product =
              expert.product(out.rows(), {in.data(), rows, shape.in}, activation);
          processor.experts(std::span(&product, 1), precision);
          const auto& expected = rounds(processor, type, precision) ? rounded : exact;
          for (int64_t row = 0; row < rows; ++row) {
            const ExpectedRow& one = expected[static_cast<size_t>(row)];
            expect_close(out.values(row, 1), one.out, one.tolerances, 1.0);
            if (testing::Test::HasFatalFailure()) return;
          }
          EXPECT_TRUE(out.guards_are_whole());
        }
      });
    }
  }
}

// Biases, scaled inputs and clamped gates: the results of the reference, and of an expert whose
// inputs were scaled before.
TEST(CpuExperts, BiasesScalesAndClampedGatesAgreeWithTheReference) {
  constexpr ExpertShape kShape = {70, 133, 45};
  constexpr int64_t kRows = 37;
  const Expert expert(kShape, DType::BF16, DType::BF16, 3);
  const std::vector<float> in = random_floats(kRows * kShape.in, 4);
  const std::vector<float> scales = random_floats(kRows, 5);
  for (const DType type : kStoredTypes) {
    const ExpertBiases biases(kShape, type, 7);
    const auto product_of = [&](Rows out, ConstRows from) {
      ExpertProduct product = expert.product(out, from, Activation::clamped_swiglu);
      product.swiglu = {1.3f, 0.8f};
      product.gate_bias = biases.gate.view;
      product.up_bias = biases.up.view;
      product.down_bias = biases.down.view;
      return product;
    };
    for (const Precision precision : {Precision::f32, Precision::bf16}) {
      std::vector<float> expected(static_cast<size_t>(kRows * kShape.out));
      ExpertProduct plain =
          product_of({expected.data(), kRows, kShape.out}, {in.data(), kRows, kShape.in});
      plain.in_scales = scales;
      reference_processor().experts(std::span(&plain, 1), precision);
      const float tolerance = precision == Precision::f32 ? 1e-4f : 0.3f;
      with_every_processor([&](const CpuProcessor& processor) {
        Output out(kRows, kShape.out);
        ExpertProduct product = product_of(out.rows(), {in.data(), kRows, kShape.in});
        product.in_scales = scales;
        processor.experts(std::span(&product, 1), precision);
        expect_close(out.values(), expected, std::vector<float>(expected.size(), 1.0f), tolerance);
        EXPECT_TRUE(out.guards_are_whole());

        std::vector<float> scaled = in;
        processor.scale_rows({scaled.data(), kRows, kShape.in}, scales);
        Output again(kRows, kShape.out);
        product = product_of(again.rows(), {scaled.data(), kRows, kShape.in});
        processor.experts(std::span(&product, 1), precision);
        EXPECT_TRUE(same_bits(again.values(), out.values()));
      });
    }
  }
}

// Without an up, an expert is down(activation(gate(in))): what an up of ones would give.
TEST(CpuExperts, WithoutAnUpAgreeWithTheReference) {
  constexpr ExpertShape kShape = {70, 133, 45};
  constexpr int64_t kRows = 37;
  const std::vector<float> in = random_floats(kRows * kShape.in, 4);
  for (const DType type : kStoredTypes) {
    const Expert expert(kShape, type, type, 3);
    const ExpertBiases biases(kShape, type, 7);
    const auto product_of = [&](Rows out) {
      ExpertProduct product = expert.product(out, {in.data(), kRows, kShape.in}, Activation::relu);
      product.up = {};
      product.gate_bias = biases.gate.view;
      product.down_bias = biases.down.view;
      return product;
    };
    for (const Precision precision : {Precision::f32, Precision::bf16}) {
      std::vector<float> expected(static_cast<size_t>(kRows * kShape.out));
      const ExpertProduct plain = product_of({expected.data(), kRows, kShape.out});
      reference_processor().experts(std::span(&plain, 1), precision);
      // Results are about 100 in size.
      const std::vector<float> sizes(expected.size(), 100.0f);
      const float tolerance = precision == Precision::f32 ? 1e-5f : 2e-2f;
      with_every_processor([&](const CpuProcessor& processor) {
        Output out(kRows, kShape.out);
        const ExpertProduct product = product_of(out.rows());
        processor.experts(std::span(&product, 1), precision);
        expect_close(out.values(), expected, sizes, tolerance);
        EXPECT_TRUE(out.guards_are_whole());
      });
    }
  }
}

// The product of a slice of an expert: the contribution of outputs begin .. end - 1 of gate and up
// to its results.
ExpertProduct slice(ExpertProduct product, int64_t begin, int64_t end) {
  product.gate = rows_between(product.gate, begin, end);
  product.up = rows_between(product.up, begin, end);
  product.down = columns_between(product.down, begin, end);
  return product;
}

TEST(CpuExperts, SlicesAddUpToTheWhole) {
  constexpr ExpertShape kShape = {70, 165, 45};
  constexpr int64_t kRows = 35;
  const std::vector<float> in = random_floats(kRows * kShape.in, 1);
  for (const auto& [first, second] : std::vector<std::pair<DType, DType>>{
           {DType::F32, DType::F32}, {DType::F16, DType::BF16}, {DType::BF16, DType::BF16}}) {
    const Expert expert(kShape, first, second, 20);
    std::vector<ExpectedRow> exact;
    std::vector<ExpectedRow> rounded;
    for (int64_t row = 0; row < kRows; ++row) {
      const auto input = std::span(in).subspan(size_t(row * kShape.in), size_t(kShape.in));
      exact.emplace_back(expert, input, Activation::silu, Precision::f32);
      rounded.emplace_back(expert, input, Activation::silu, Precision::bf16);
    }
    with_every_processor([&, type = second](const CpuProcessor& processor) {
      for (const Precision precision : kPrecisions) {
        for (const int64_t middle : {32, 96, 1, 41, 164}) {
          SCOPED_TRACE(testing::Message() << "slices meet at " << middle);
          Output lower(kRows, kShape.out);
          Output upper(kRows, kShape.out);
          const ConstRows inputs(in.data(), kRows, kShape.in);
          const ExpertProduct slices[] = {
              slice(expert.product(lower.rows(), inputs), 0, middle),
              slice(expert.product(upper.rows(), inputs), middle, kShape.width)};
          processor.experts(slices, precision);
          reference_processor().add(lower.rows(), upper.rows());
          const auto& expected = rounds(processor, type, precision) ? rounded : exact;
          for (int64_t row = 0; row < kRows; ++row) {
            const ExpectedRow& one = expected[static_cast<size_t>(row)];
            expect_close(lower.values(row, 1), one.out, one.tolerances, 1.0);
            if (testing::Test::HasFatalFailure()) return;
          }
        }
      }
    });
  }
}

TEST(CpuExperts, SlicesInPlaceAreTheSameBitsAsCopies) {
  constexpr ExpertShape kShape = {40, 1700, 33};
  const std::vector<float> numbers = random_floats(kShape.out * kShape.width, 31);
  for (const auto& [begin, end] :
       std::vector<std::pair<int64_t, int64_t>>{{0, 1600}, {1600, 1700}, {37, 1663}, {0, 1}}) {
    for (const DType dtype : kStoredTypes) {
      Expert expert(kShape, dtype, dtype, 30);
      expert.down = Weights(only_columns(numbers, kShape.width, begin, end), dtype,
                            {kShape.out, kShape.width});
      const Weights copy(columns_of(numbers, kShape.width, begin, end), dtype,
                         {kShape.out, end - begin});
      for (const int64_t rows : {1, 9, 40}) {
        const std::vector<float> in = random_floats(rows * kShape.in, static_cast<unsigned>(rows));
        with_every_processor([&, b = begin, e = end](const CpuProcessor& processor) {
          for (const Precision precision : kPrecisions) {
            Output in_place(rows, kShape.out);
            Output copied(rows, kShape.out);
            ExpertProduct product =
                slice(expert.product(in_place.rows(), {in.data(), rows, kShape.in}), b, e);
            processor.experts(std::span(&product, 1), precision);
            product.out = copied.rows();
            product.down = copy.view;
            processor.experts(std::span(&product, 1), precision);
            ASSERT_TRUE(same_bits(in_place.values(), copied.values()))
                << rows << " rows, " << b << " to " << e;
          }
        });
      }
    }
  }
}

// Compact weights are cut too: gate and up by their rows, down by its columns, in two parts as when
// a device computes one of them.
TEST(CpuExperts, CompactWeightsAreTheSameBitsAsPlainOnes) {
  for (const ExpertShape& shape : {ExpertShape{64, 128, 64}, {200, 1700, 33}, {2500, 100, 300}}) {
    const Expert plain(shape, DType::BF16, DType::BF16, 40);
    const Expert compact(shape, kCompactType, kCompactType, 40);
    const Expert mixed(shape, DType::BF16, kCompactType, 40);
    for (const int64_t rows : {1, 9, 17, 32, 270}) {
      if (rows == 270 && shape.in > 64) continue;  // skipped: takes long
      const std::vector<float> in = random_floats(rows * shape.in, static_cast<unsigned>(rows));
      with_every_processor([&](const CpuProcessor& processor) {
        for (const Precision precision : kPrecisions) {
          for (const int64_t from : {int64_t{0}, shape.width / 2 / 64 * 64}) {
            // Up may have another form than gate.
            const auto run = [&](const Expert& expert, const Expert& of_up) {
              Output out(rows, shape.out);
              ExpertProduct whole = expert.product(out.rows(), {in.data(), rows, shape.in});
              whole.up = of_up.up.view;
              const ExpertProduct product = slice(whole, from, shape.width);
              processor.experts(std::span(&product, 1), precision);
              EXPECT_TRUE(out.guards_are_whole());
              return out;
            };
            const Output expected = run(plain, plain);
            ASSERT_TRUE(same_bits(run(compact, compact).values(), expected.values()))
                << rows << " rows, from " << from;
            ASSERT_TRUE(same_bits(run(mixed, plain).values(), expected.values()));
            ASSERT_TRUE(same_bits(run(plain, compact).values(), expected.values()));
            ASSERT_TRUE(same_bits(run(compact, plain).values(), expected.values()));
          }
        }
      });
    }
  }
}

// Several experts, each with rows of its own choice: inputs may be chosen by several, outputs not.
struct Choice {
  std::vector<Expert> experts;
  std::vector<std::vector<int32_t>> in_rows;
  std::vector<std::vector<int32_t>> out_rows;
  std::vector<int32_t> unused;  // rows of the output
  int64_t outputs = 0;

  Choice(std::mt19937& random, const ExpertShape& shape, DType dtype, int64_t inputs) {
    const std::vector<int64_t> rows = {1, 0, 17, 3, 530, 16, 40, 2, 1, 1, 5};
    outputs = std::accumulate(rows.begin(), rows.end(), int64_t{3});
    std::vector<int32_t> places(static_cast<size_t>(outputs));
    std::iota(places.begin(), places.end(), 0);
    std::shuffle(places.begin(), places.end(), random);
    for (const int64_t count : rows) {
      experts.emplace_back(shape, dtype, dtype, static_cast<unsigned>(random()));
      out_rows.emplace_back(places.end() - count, places.end());
      places.resize(places.size() - static_cast<size_t>(count));
      in_rows.emplace_back();
      for (int64_t i = 0; i < count; ++i) {
        in_rows.back().push_back(static_cast<int32_t>(up_to(random, inputs) - 1));
      }
    }
    unused = places;
  }

  std::vector<ExpertProduct> products(Rows out, ConstRows in) const {
    std::vector<ExpertProduct> result;
    for (size_t e = 0; e < experts.size(); ++e) {
      result.push_back(experts[e].product(out, in));
      result.back().in_rows = in_rows[e];
      result.back().out_rows = out_rows[e];
      if (in_rows[e].empty()) result.back().in.count = 0;
    }
    return result;
  }
};

TEST(CpuExperts, ARowIsTheSameInAnyCompany) {
  std::mt19937 random(9);
  constexpr ExpertShape kShape = {70, 97, 45};
  constexpr int64_t kInputs = 60;
  const std::vector<float> in = random_floats(kInputs * kShape.in, 1);
  const ConstRows inputs(in.data(), kInputs, kShape.in);
  for (const auto& [dtype, precision] :
       std::vector<std::pair<DType, Precision>>{{DType::F32, Precision::bf16},
                                                {DType::BF16, Precision::f32},
                                                {DType::BF16, Precision::bf16}}) {
    const Choice choice(random, kShape, dtype, kInputs);
    SameEverywhere same;
    with_every_processor([&, p = precision](const CpuProcessor& processor) {
      Output together(choice.outputs, kShape.out);
      processor.experts(choice.products(together.rows(), inputs), p);
      ASSERT_TRUE(same.holds(processor, together.values()));
      ASSERT_TRUE(together.guards_are_whole());
      for (const int32_t row : choice.unused) {
        for (const float value : together.values(row, 1)) ASSERT_TRUE(std::isnan(value)) << row;
      }
      Output each(choice.outputs, kShape.out);
      for (const ExpertProduct& product : choice.products(each.rows(), inputs)) {
        processor.experts(std::span(&product, 1), p);
        for (size_t i = 0; i < product.in_rows.size(); i += 1 + i / 8) {
          Output alone(1, kShape.out);
          const ExpertProduct one = {.out = alone.rows(),
                                     .in = {inputs.row(product.in_rows[i]), 1, kShape.in},
                                     .out_rows = {},
                                     .in_rows = {},
                                     .gate = product.gate,
                                     .up = product.up,
                                     .down = product.down};
          processor.experts(std::span(&one, 1), p);
          ASSERT_TRUE(same_bits(alone.values(), together.values(product.out_rows[i], 1)))
              << "row " << i << " of " << product.in_rows.size();
        }
      }
      ASSERT_TRUE(same_bits(each.values(), together.values()));
    });
  }
}

// A copy of a matrix, rearranged for a processor.
struct Arranged {
  std::vector<std::byte> bytes;
  TensorView view;

  Arranged(const CpuProcessor& processor, const Weights& weights, Precision precision)
      : bytes(weights.bytes), view(weights.view) {
    view.data = bytes.data();
    view.order = processor.arrange(bytes.data(), view.dtype, view.shape, precision);
  }
};

TEST(CpuExperts, ArrangedWeightsGiveTheSameBits) {
  int64_t arranged = 0;
  for (const ExpertShape& shape : std::vector<ExpertShape>{
           {8, 16, 8}, {40, 104, 32}, {1600, 32, 96}, {72, 216, 40}, {96, 544, 48}}) {
    for (const DType dtype : kStoredTypes) {
      const Expert expert(shape, dtype, dtype, 11);
      for (const int64_t rows : {1, 3, 8, 10, 12, 13, 21, 40, 165}) {
        const std::vector<float> in = random_floats(rows * shape.in, static_cast<unsigned>(rows));
        with_every_processor([&](const CpuProcessor& processor) {
          for (const Precision precision : kPrecisions) {
            const Arranged gate(processor, expert.gate, precision);
            const Arranged up(processor, expert.up, precision);
            const Arranged down(processor, expert.down, precision);
            if (gate.view.order == ElementOrder::arranged) ++arranged;
            Output plain(rows, shape.out);
            Output fast(rows, shape.out);
            ExpertProduct product = expert.product(plain.rows(), {in.data(), rows, shape.in});
            processor.experts(std::span(&product, 1), precision);
            product.out = fast.rows();
            product.gate = gate.view;
            product.up = up.view;
            product.down = down.view;
            processor.experts(std::span(&product, 1), precision);
            ASSERT_TRUE(same_bits(fast.values(), plain.values())) << rows << " rows";
            ASSERT_TRUE(fast.guards_are_whole());
          }
        });
      }
    }
  }
  const auto all = every_kernels();
  const bool some = std::any_of(all.begin(), all.end(), [](const cpu::Kernels* kernels) {
    return kernels->bf16 && kernels->bf16->arrangement;
  });
  EXPECT_EQ(arranged > 0, some);
}

// Arranged weights in matmul, the other operation that multiplies by weights: with inputs in two
// parts and a bias, in more rows than one call takes.
TEST(CpuExperts, ArrangedWeightsGiveTheSameBitsInMatmul) {
  constexpr int64_t kOutputs = 112;
  constexpr int64_t kWidth = 96;
  const Weights weight(random_floats(kOutputs * kWidth, 1), DType::BF16, {kOutputs, kWidth});
  const Weights bias(random_floats(kOutputs, 2), DType::BF16, {kOutputs});
  for (const int64_t rows : {6, 150}) {
    const std::vector<float> in = random_floats(rows * kWidth, static_cast<unsigned>(rows));
    with_every_processor([&](const CpuProcessor& processor) {
      for (const Precision precision : {Precision::two_bf16, Precision::bf16}) {
        const Arranged arranged(processor, weight, precision);
        Output plain(rows, kOutputs);
        Output fast(rows, kOutputs);
        const ConstRows inputs(in.data(), rows, kWidth);
        processor.matmul(plain.rows(), inputs, weight.view, bias.view, precision);
        processor.matmul(fast.rows(), inputs, arranged.view, bias.view, precision);
        ASSERT_TRUE(same_bits(fast.values(), plain.values())) << rows << " rows";
        ASSERT_TRUE(fast.guards_are_whole());
      }
    });
  }
}

TEST(CpuExperts, AnOrderThatProductsDoNotReadIsRefused) {
  const Expert expert({32, 32, 32}, DType::BF16, DType::BF16, 1);
  const std::vector<float> in = random_floats(32, 2);
  with_every_processor([&](const CpuProcessor& processor) {
    Output out(1, 32);
    ExpertProduct product = expert.product(out.rows(), {in.data(), 1, 32});
    product.up.order = ElementOrder::arranged;
    EXPECT_THROW(processor.experts(std::span(&product, 1), Precision::f32), Error);
    product.up.row_stride = 128;
    EXPECT_THROW(processor.experts(std::span(&product, 1), Precision::bf16), Error);
  });
}

TEST(CpuExperts, OddMatricesStayAsTheyAre) {
  for (const auto& [outputs, width] :
       std::vector<std::pair<int64_t, int64_t>>{{3, 32}, {16, 12}, {1, 1}, {12, 32}}) {
    const Weights weights(random_floats(outputs * width, 1), DType::BF16, {outputs, width});
    with_every_processor([&](const CpuProcessor& processor) {
      const Arranged same(processor, weights, Precision::bf16);
      EXPECT_EQ(same.view.order, ElementOrder::rows);
      EXPECT_EQ(same.bytes, weights.bytes);
    });
  }
}

// Puts zeros, which compact rows list, into each row: at both ends of the row and of the pieces
// that are expanded at a time.
std::vector<float> with_zeros(std::vector<float> matrix, int64_t columns) {
  for (size_t row = 0; row < matrix.size(); row += static_cast<size_t>(columns)) {
    for (const int64_t at : {int64_t{0}, int64_t{255}, int64_t{256}, int64_t{512}, columns - 1}) {
      matrix[row + static_cast<size_t>(at)] = 0.0f;
    }
  }
  return matrix;
}

// Turns the list of each row around, so that the last number comes first.
void turn_lists_around(Weights& weights) {
  const int64_t rows = weights.view.rows();
  const auto row_bytes = static_cast<size_t>(compact_row_bytes(weights.view.columns()));
  for (size_t row = 0; row < static_cast<size_t>(rows) * row_bytes; row += row_bytes) {
    uint16_t listed = 0;
    std::memcpy(&listed, weights.bytes.data() + row + 2, sizeof(listed));
    ASSERT_GE(listed, 5);
    std::vector<uint32_t> list(listed);
    std::memcpy(list.data(), weights.bytes.data() + row + 4, 4 * list.size());
    std::reverse(list.begin(), list.end());
    std::memcpy(weights.bytes.data() + row + 4, list.data(), 4 * list.size());
  }
}

TEST(CpuExperts, ListedNumbersOfCompactWeights) {
  constexpr int64_t kIn = 1100;
  constexpr int64_t kWidth = 700;
  constexpr int64_t kOut = 40;
  const std::vector<float> gate = with_zeros(random_floats(kWidth * kIn, 1), kIn);
  const std::vector<float> down = with_zeros(random_floats(kOut * kWidth, 2), kWidth);
  const auto expert_of = [&](DType type) {
    Expert expert({kIn, kWidth, kOut}, type, type, 3);
    expert.gate = Weights(gate, type, {kWidth, kIn});
    expert.down = Weights(down, type, {kOut, kWidth});
    return expert;
  };
  const Expert plain = expert_of(DType::BF16);
  Expert compact = expert_of(kCompactType);
  for (const bool disordered : {false, true}) {
    if (disordered) {
      turn_lists_around(compact.gate);
      turn_lists_around(compact.down);
    }
    for (const int64_t rows : {1, 17, 33}) {
      const std::vector<float> in = random_floats(rows * kIn, static_cast<unsigned>(rows));
      with_every_processor([&](const CpuProcessor& processor) {
        for (const Precision precision : kPrecisions) {
          for (const int64_t from : {0, 320}) {
            const auto run = [&](const Expert& expert) {
              Output out(rows, kOut);
              const ExpertProduct product =
                  slice(expert.product(out.rows(), {in.data(), rows, kIn}), from, kWidth);
              processor.experts(std::span(&product, 1), precision);
              return out;
            };
            ASSERT_TRUE(same_bits(run(compact).values(), run(plain).values()))
                << rows << " rows, from " << from << (disordered ? ", disordered" : "");
          }
        }
      });
    }
  }
}

TEST(CpuExperts, CompactWeightsStayInTheirOrder) {
  const Weights weights(random_floats(64 * 64, 1), kCompactType, {64, 64});
  with_every_processor([&](const CpuProcessor& processor) {
    const Arranged same(processor, weights, Precision::bf16);
    EXPECT_EQ(same.view.order, ElementOrder::rows);
    EXPECT_EQ(same.bytes, weights.bytes);
  });
}

TEST(CpuExperts, WhatIsNotFiniteStaysInItsRow) {
  constexpr ExpertShape kShape = {35, 50, 21};
  constexpr int64_t kRows = 37;
  constexpr int64_t kBad = 18;
  const std::vector<float> in = random_floats(kRows * kShape.in, 1);
  for (const DType dtype : kStoredTypes) {
    const Expert expert(kShape, dtype, dtype, 5);
    for (const float bad : {kInfinity, -kInfinity, kPoison}) {
      std::vector<float> spoilt = in;
      spoilt[kBad * kShape.in + 3] = bad;
      with_every_processor([&](const CpuProcessor& processor) {
        for (const Precision precision : kPrecisions) {
          const auto run = [&](const std::vector<float>& inputs) {
            Output out(kRows, kShape.out);
            const auto product = expert.product(out.rows(), {inputs.data(), kRows, kShape.in});
            processor.experts(std::span(&product, 1), precision);
            return out;
          };
          const Output clean = run(in);
          const Output found = run(spoilt);
          EXPECT_TRUE(same_bits(found.values(0, kBad), clean.values(0, kBad)));
          EXPECT_TRUE(same_bits(found.values(kBad + 1, kRows - kBad - 1),
                                clean.values(kBad + 1, kRows - kBad - 1)));
          for (const float value : found.values(kBad, 1)) EXPECT_FALSE(std::isfinite(value));
        }
      });
    }
  }
}

// A file may hold them in different types.
TEST(CpuExperts, GateAndUpEachHaveTheirOwnType) {
  constexpr ExpertShape kShape = {40, 33, 17};
  Expert expert(kShape, DType::BF16, DType::BF16, 1);
  expert.up =
      Weights(random_floats(kShape.width * kShape.in, 2), DType::F16, {kShape.width, kShape.in});
  const std::vector<float> in = random_floats(kShape.in, 3);
  const ExpectedRow expected(expert, in, Activation::silu, Precision::f32);
  std::vector<float> loose = expected.tolerances;
  for (float& tolerance : loose) tolerance *= static_cast<float>(kRoundedInputs / kSameInputs);
  with_every_processor([&](const CpuProcessor& processor) {
    for (const Precision precision : kPrecisions) {
      Output out(1, kShape.out);
      const ExpertProduct product = expert.product(out.rows(), {in.data(), 1, kShape.in});
      processor.experts(std::span(&product, 1), precision);
      expect_close(out.values(), expected.out,
                   rounds(processor, DType::BF16, precision) ? loose : expected.tolerances, 1.0);
    }
  });
}

TEST(CpuExperts, NoRowsAreNoWork) {
  const Expert expert({3, 4, 5}, DType::BF16, DType::BF16, 1);
  const ExpertProduct nobody = expert.product({nullptr, 0, 5}, {nullptr, 0, 3});
  with_every_processor([&](const CpuProcessor& processor) {
    for (const Precision precision : kPrecisions) {
      processor.experts({}, precision);
      processor.experts(std::span(&nobody, 1), precision);
    }
  });
}

}  // namespace
}  // namespace klotski
