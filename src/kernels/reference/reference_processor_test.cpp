// The oracle itself is held against formulas written another way, in double precision.

#include "kernels/reference/reference_processor.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "kernels/cpu/testing.h"
#include "kernels/reference/weight_row.h"

namespace klotski {
namespace {

const Processor& ops = reference_processor();

TensorView view(const std::vector<float>& values, Shape shape) {
  return {reinterpret_cast<const std::byte*>(values.data()), DType::F32, std::move(shape)};
}

// row * weights^T, in double precision
std::vector<double> plain_product(std::span<const double> row, const TensorView& weights) {
  std::vector<double> out;
  for (int64_t n = 0; n < weights.rows(); ++n) {
    double sum = 0.0;
    for (size_t k = 0; k < row.size(); ++k) {
      sum += row[k] * double(reference::load_element(weights, n * weights.columns() + int64_t(k)));
    }
    out.push_back(sum);
  }
  return out;
}

// A row of inputs as a product with such weights sees it.
std::vector<double> seen_by(std::span<const double> row, DType weights, Precision precision) {
  std::vector<double> seen(row.begin(), row.end());
  if (weights == DType::BF16 && precision == Precision::bf16) {
    for (double& value : seen) value = rounded_to_bf16(static_cast<float>(value));
  }
  return seen;
}

TEST(ReferenceNorm, LeavesNumbersBehindTheWeightAsTheyAre) {
  std::vector<float> rows = {3, 4, 7, 0, 2, 9};
  const float weight[] = {1, 2};
  const TensorView view{reinterpret_cast<const std::byte*>(weight), DType::F32, {2}};
  reference_processor().rms_norm({rows.data(), 2, 3}, {rows.data(), 2, 3}, view, 0.0f);
  const float root = std::sqrt(12.5f);
  EXPECT_FLOAT_EQ(rows[0], 3 / root);
  EXPECT_FLOAT_EQ(rows[1], 8 / root);
  EXPECT_EQ(rows[2], 7.0f);
  EXPECT_FLOAT_EQ(rows[4], 4 / std::sqrt(2.0f));
  EXPECT_EQ(rows[5], 9.0f);
}

TEST(ReferenceRope, LeavesTheFirstNumbersOfAHeadAsTheyAre) {
  std::vector<float> heads = {5, 6, 1, 0, /* second head */ 7, 8, 0, 1};
  const int32_t position = 1;
  const float frequency = 0.5f;
  const int32_t table = 0;
  reference_processor().rope({.heads = {heads.data(), 1, 8},
                              .head_dim = 4,
                              .pairs = 1,
                              .first = 2,
                              .positions = std::span(&position, 1),
                              .frequencies = std::span(&frequency, 1),
                              .tables = std::span(&table, 1)});
  const float cosine = std::cos(0.5f);
  const float sine = std::sin(0.5f);
  EXPECT_EQ(heads, (std::vector<float>{5, 6, cosine, sine, 7, 8, -sine, cosine}));
}

TEST(ReferenceOps, MatmulReadsEveryWeightTypeAndAddsTheBias) {
  const std::vector<float> x = random_floats(3 * 5, 1);
  const std::vector<float> w = random_floats(4 * 5, 2);
  const std::vector<float> bias = random_floats(4, 3);
  for (const auto& [dtype, tolerance] : std::vector<std::pair<DType, float>>{
           {DType::F32, 1e-6f}, {DType::BF16, 2e-2f}, {DType::F16, 4e-3f}}) {
    const Weights weight(w, dtype, {4, 5});
    std::vector<float> out(3 * 4, kPoison);
    ops.matmul({out.data(), 3, 4}, {x.data(), 3, 5}, weight.view, view(bias, {4}), Precision::f32);
    for (size_t r = 0; r < 3; ++r) {
      for (size_t n = 0; n < 4; ++n) {
        const double exact = std::inner_product(x.begin() + static_cast<ptrdiff_t>(r * 5),
                                                x.begin() + static_cast<ptrdiff_t>(r * 5 + 5),
                                                w.begin() + static_cast<ptrdiff_t>(n * 5), 0.0) +
                             bias[n];
        EXPECT_NEAR(out[r * 4 + n], exact, tolerance * 5);
      }
    }
  }
}

TEST(ReferenceOps, MatmulRoundsInputsForBf16WeightsOnly) {
  const std::vector<float> x = random_floats(9, 1);
  const std::vector<double> row(x.begin(), x.end());
  for (const DType dtype : kStoredTypes) {
    const Weights weight(random_floats(4 * 9, 2), dtype, {4, 9});
    for (const Precision precision : kPrecisions) {
      std::vector<float> out(4, kPoison);
      ops.matmul({out.data(), 1, 4}, {x.data(), 1, 9}, weight.view, {}, precision);
      const auto exact = plain_product(seen_by(row, dtype, precision), weight.view);
      for (size_t n = 0; n < 4; ++n) EXPECT_NEAR(out[n], exact[n], 1e-5);
    }
  }
}

TEST(ReferenceOps, MatmulReadsSomeColumnsOfAMatrix) {
  const std::vector<float> x = {1, 10};
  const std::vector<float> w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
  for (const DType dtype : kStoredTypes) {
    const Weights weight(w, dtype, {3, 4});
    std::vector<float> out(3, kPoison);
    ops.matmul({out.data(), 1, 3}, {x.data(), 1, 2}, columns_between(weight.view, 1, 3), {},
               Precision::f32);
    EXPECT_EQ(out, (std::vector<float>{32, 76, 120}));
  }
}

TEST(ReferenceOps, ExpertsGatherGateAndScatter) {
  const std::vector<float> in = random_floats(3 * 5, 1);
  const std::vector<int32_t> in_rows = {2, 0};
  const std::vector<int32_t> out_rows = {1, 3};
  for (const DType dtype : kStoredTypes) {
    const Weights gate(random_floats(6 * 5, 2), dtype, {6, 5});
    const Weights up(random_floats(6 * 5, 3), dtype, {6, 5});
    const Weights down(random_floats(4 * 6, 4), dtype, {4, 6});
    for (const Precision precision : kPrecisions) {
      std::vector<float> out(4 * 4, kPoison);
      const ExpertProduct product = {.out = {out.data(), 4, 4},
                                     .in = {in.data(), 3, 5},
                                     .out_rows = out_rows,
                                     .in_rows = in_rows,
                                     .gate = gate.view,
                                     .up = up.view,
                                     .down = down.view};
      ops.experts(std::span(&product, 1), precision);
      for (size_t i = 0; i < 2; ++i) {
        const float* from = product.in.row(in_rows[i]);
        const auto row = seen_by(std::vector<double>(from, from + 5), dtype, precision);
        std::vector<double> gated = plain_product(row, gate.view);
        const std::vector<double> ups = plain_product(row, up.view);
        for (size_t k = 0; k < 6; ++k) gated[k] *= ups[k] / (1.0 + std::exp(-gated[k]));
        const auto exact = plain_product(seen_by(gated, dtype, precision), down.view);
        for (size_t n = 0; n < 4; ++n) EXPECT_NEAR(product.out.row(out_rows[i])[n], exact[n], 1e-4);
      }
      for (const int64_t row : {0, 2}) EXPECT_TRUE(std::isnan(product.out.row(row)[0]));
    }
  }
}

TEST(ReferenceOps, ExpertsTakeAllRowsInOrderWhereNoneAreNamed) {
  constexpr int64_t kRows = 70;  // more than are computed at a time
  const std::vector<float> in = random_floats(kRows, 1);
  const std::vector<float> one = {1.0f};
  const std::vector<float> three = {3.0f};
  std::vector<float> out(kRows, kPoison);
  const ExpertProduct product = {.out = {out.data(), kRows, 1},
                                 .in = {in.data(), kRows, 1},
                                 .out_rows = {},
                                 .in_rows = {},
                                 .gate = view(one, {1, 1}),
                                 .up = view(one, {1, 1}),
                                 .down = view(three, {1, 1}),
                                 .activation = Activation::relu};
  ops.experts(std::span(&product, 1), Precision::f32);
  for (size_t i = 0; i < kRows; ++i) {
    EXPECT_EQ(out[i], in[i] > 0.0f ? in[i] * in[i] * 3.0f : 0.0f);
  }
}

TEST(ReferenceOps, RmsNormOfAConstantRowIsTheWeight) {
  const std::vector<float> in = {2, 2, 2, -3, -3, -3};
  const std::vector<float> weight = {1, 2, 0.5f};
  std::vector<float> out(6, kPoison);
  ops.rms_norm({out.data(), 2, 3}, {in.data(), 2, 3}, view(weight, {3}), 0.0f);
  const std::vector<float> expected = {1, 2, 0.5f, -1, -2, -0.5f};
  for (size_t i = 0; i < 6; ++i) EXPECT_NEAR(out[i], expected[i], 1e-6f);
}

TEST(ReferenceOps, RopeRotatesPairsByPositionTimesFrequency) {
  for (const bool interleaved : {false, true}) {
    // Two heads of four dims, two pairs rotated; one token at position 3.
    std::vector<float> heads = {1, 2, 3, 4, 5, 6, 7, 8};
    const std::vector<float> before = heads;
    const std::vector<float> frequencies = {0.5f, 0.1f};
    const std::vector<int32_t> positions = {3};
    const std::vector<int32_t> tables = {0};
    ops.rope({.heads = {heads.data(), 1, 8},
              .head_dim = 4,
              .pairs = 2,
              .positions = positions,
              .frequencies = frequencies,
              .tables = tables,
              .scale = 2.0f,
              .interleaved = interleaved});
    for (size_t head = 0; head < 8; head += 4) {
      for (size_t pair = 0; pair < 2; ++pair) {
        const size_t a = head + (interleaved ? 2 * pair : pair);
        const size_t b = head + (interleaved ? 2 * pair + 1 : pair + 2);
        const double angle = 3.0 * static_cast<double>(frequencies[pair]);
        EXPECT_NEAR(heads[a], 2 * (before[a] * std::cos(angle) - before[b] * std::sin(angle)),
                    1e-5);
        EXPECT_NEAR(heads[b], 2 * (before[b] * std::cos(angle) + before[a] * std::sin(angle)),
                    1e-5);
      }
    }
  }
}

TEST(ReferenceOps, PartialRopeLeavesTheRestOfAHead) {
  std::vector<float> head = {1, 2, 3, 4, 5, 6};
  const std::vector<float> frequencies = {7.0f, 1.0f};  // two tables
  const std::vector<int32_t> positions = {1};
  const std::vector<int32_t> tables = {1};
  ops.rope({.heads = {head.data(), 1, 6},
            .head_dim = 6,
            .pairs = 1,
            .positions = positions,
            .frequencies = frequencies,
            .tables = tables});
  EXPECT_EQ(std::vector<float>(head.begin() + 2, head.end()), (std::vector<float>{3, 4, 5, 6}));
  EXPECT_NEAR(head[0], std::cos(1.0) - 2 * std::sin(1.0), 1e-6);
}

TEST(ReferenceOps, GateAppliesTheActivationToTheGateOnly) {
  const std::vector<float> up = {2, 2, 2};
  const auto gated = [&](Activation activation) {
    std::vector<float> gate = {-1, 0, 1.5f};
    reference::gate({gate.data(), 1, 3}, {up.data(), 1, 3}, activation);
    return gate;
  };
  EXPECT_NEAR(gated(Activation::silu)[2], 2 * 1.5 / (1 + std::exp(-1.5)), 1e-6);
  EXPECT_NEAR(gated(Activation::silu)[0], -2 / (1 + std::exp(1.0)), 1e-6);
  EXPECT_NEAR(gated(Activation::gelu)[2], 1.5 * (1 + std::erf(1.5 / std::sqrt(2.0))), 1e-5);
  EXPECT_NEAR(gated(Activation::gelu_tanh)[2], gated(Activation::gelu)[2], 2e-3);
  EXPECT_EQ(gated(Activation::relu), (std::vector<float>{0, 0, 3}));
}

TEST(ReferenceOps, CombineSumsTheSlotsOfEachRow) {
  const std::vector<float> slots = {1, 2, 3, 4, 5, 6, 7, 8};
  const std::vector<float> weights = {0.5f, 0.25f, 2, 1};
  std::vector<float> out = {100, 100, 200, 200};
  ops.combine({out.data(), 2, 2}, {slots.data(), 4, 2}, weights);
  EXPECT_EQ(out, (std::vector<float>{100 + 0.5f + 0.75f, 100 + 1 + 1, 200 + 10 + 7, 200 + 12 + 8}));
}

TEST(ReferenceOps, EmbedAndGatherPickRows) {
  const std::vector<float> table = {1, 2, 3, 4, 5, 6};
  std::vector<float> out(4, kPoison);
  const std::vector<TokenId> tokens = {2, 0};
  ops.embed({out.data(), 2, 2}, view(table, {3, 2}), tokens);
  EXPECT_EQ(out, (std::vector<float>{5, 6, 1, 2}));
  const std::vector<int32_t> rows = {1, 1};
  std::vector<float> gathered(4, kPoison);
  ops.gather({gathered.data(), 2, 2}, {out.data(), 2, 2}, rows);
  EXPECT_EQ(gathered, (std::vector<float>{1, 2, 1, 2}));
}

TEST(ReferenceOps, MostLikelyIsTheFirstOfTheLargest) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const float nan = std::nanf("");
  const std::vector<float> logits = {1,          3,          3,          2,           //
                                     -5,         -kInfinity, -4,         -kInfinity,  //
                                     1,          nan,        2,          0,           //
                                     1,          2,          kInfinity,  0,           //
                                     -kInfinity, -kInfinity, -kInfinity, -kInfinity};
  for (const Processor* any : {&ops, &cpu_processor()}) {
    std::vector<TokenId> tokens(5);
    any->most_likely(tokens, {logits.data(), 5, 4});
    EXPECT_EQ(tokens, (std::vector<TokenId>{1, 2, -1, -1, -1}));
  }
}

TEST(ReferenceOps, ScatterPutsRowsAndLeavesTheOthers) {
  const std::vector<float> in = {1, 2, 3, 4};
  const std::vector<int32_t> rows = {2, 0};
  std::vector<float> out = {10, 20, 30, 40, 50, 60, 70, 80};
  ops.scatter({out.data(), 4, 2}, {in.data(), 2, 2}, rows);
  EXPECT_EQ(out, (std::vector<float>{3, 4, 30, 40, 1, 2, 70, 80}));
  const std::vector<float> before = out;
  ops.scatter({out.data(), 4, 2}, {nullptr, 0, 2}, {});
  EXPECT_EQ(out, before);
}

TEST(ReferenceOps, ScatterAddAddsRowsToTheirPlaces) {
  const std::vector<float> in = {1, 2, 3, 4};
  const std::vector<int32_t> rows = {2, 0};
  std::vector<float> out = {10, 20, 30, 40, 50, 60, 70, 80};
  ops.scatter_add({out.data(), 4, 2}, {in.data(), 2, 2}, rows);
  EXPECT_EQ(out, (std::vector<float>{13, 24, 30, 40, 51, 62, 70, 80}));
  const std::vector<float> before = out;
  ops.scatter_add({out.data(), 4, 2}, {nullptr, 0, 2}, {});
  EXPECT_EQ(out, before);
}

}  // namespace
}  // namespace klotski
