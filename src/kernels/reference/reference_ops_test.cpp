// The oracle itself is held against formulas written another way, in double precision.

#include "kernels/reference/reference_ops.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <random>

#include "tensor/half.h"

namespace klotski {
namespace {

const Ops& ops = reference_ops();
constexpr float kPoison = std::numeric_limits<float>::quiet_NaN();

std::vector<float> random_floats(size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

TensorView view(const std::vector<float>& values, Shape shape) {
  return {reinterpret_cast<const std::byte*>(values.data()), DType::F32, std::move(shape)};
}

TEST(ReferenceOps, MatmulReadsEveryWeightTypeAndAddsTheBias) {
  const std::vector<float> x = random_floats(3 * 5, 1);
  const std::vector<float> w = random_floats(4 * 5, 2);
  const std::vector<float> bias = random_floats(4, 3);
  std::vector<uint16_t> bf16(w.size());
  std::vector<uint16_t> f16(w.size());
  std::transform(w.begin(), w.end(), bf16.begin(), float_to_bf16);
  std::transform(w.begin(), w.end(), f16.begin(), float_to_f16);
  const auto bytes = [](const auto& v) { return reinterpret_cast<const std::byte*>(v.data()); };
  const std::vector<std::pair<TensorView, float>> cases = {
      {{bytes(w), DType::F32, {4, 5}}, 1e-6f},
      {{bytes(bf16), DType::BF16, {4, 5}}, 2e-2f},
      {{bytes(f16), DType::F16, {4, 5}}, 4e-3f}};
  for (const auto& [weight, tolerance] : cases) {
    std::vector<float> out(3 * 4, kPoison);
    ops.matmul({out.data(), 3, 4}, {x.data(), 3, 5}, weight, view(bias, {4}));
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
    ops.rope({.heads = {heads.data(), 1, 8},
              .head_dim = 4,
              .positions = positions,
              .frequencies = frequencies,
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
  const std::vector<float> frequencies = {1.0f};
  const std::vector<int32_t> positions = {1};
  ops.rope({.heads = {head.data(), 1, 6},
            .head_dim = 6,
            .positions = positions,
            .frequencies = frequencies});
  EXPECT_EQ(std::vector<float>(head.begin() + 2, head.end()), (std::vector<float>{3, 4, 5, 6}));
  EXPECT_NEAR(head[0], std::cos(1.0) - 2 * std::sin(1.0), 1e-6);
}

// Attention in double precision over a plain [position][head][dim] array.
std::vector<double> plain_attention(const std::vector<float>& q, const std::vector<float>& k,
                                    const std::vector<float>& v, int64_t position, int64_t heads,
                                    int64_t kv_heads, int64_t dim, int64_t window,
                                    const std::vector<float>& sinks) {
  std::vector<double> out(static_cast<size_t>(heads * dim), 0.0);
  const int64_t begin = window > 0 ? std::max<int64_t>(0, position + 1 - window) : 0;
  for (int64_t h = 0; h < heads; ++h) {
    const int64_t kv = h * kv_heads / heads;
    double sum = sinks.empty() ? 0.0 : std::exp(static_cast<double>(sinks[static_cast<size_t>(h)]));
    for (int64_t p = begin; p <= position; ++p) {
      double score = 0;
      for (int64_t d = 0; d < dim; ++d) {
        score += static_cast<double>(q[static_cast<size_t>(h * dim + d)]) *
                 static_cast<double>(k[static_cast<size_t>((p * kv_heads + kv) * dim + d)]);
      }
      const double share = std::exp(score * 0.3);
      sum += share;
      for (int64_t d = 0; d < dim; ++d) {
        out[static_cast<size_t>(h * dim + d)] +=
            share * static_cast<double>(v[static_cast<size_t>((p * kv_heads + kv) * dim + d)]);
      }
    }
    for (int64_t d = 0; d < dim; ++d) out[static_cast<size_t>(h * dim + d)] /= sum;
  }
  return out;
}

TEST(ReferenceOps, AttentionIsCausalGroupedWindowedAndKnowsSinks) {
  constexpr int64_t kHeads = 4, kKvHeads = 2, kDim = 3, kPositions = 11, kPage = 4, kFirst = 6;
  const std::vector<float> keys = random_floats(kPositions * kKvHeads * kDim, 5);
  const std::vector<float> values = random_floats(kPositions * kKvHeads * kDim, 6);
  const std::vector<float> queries = random_floats((kPositions - kFirst) * kHeads * kDim, 7);
  std::vector<const float*> key_pages;
  std::vector<const float*> value_pages;
  for (int64_t p = 0; p < kPositions; p += kPage) {
    key_pages.push_back(keys.data() + p * kKvHeads * kDim);
    value_pages.push_back(values.data() + p * kKvHeads * kDim);
  }
  for (const int64_t window : {0, 1, 3, 100}) {
    for (const bool with_sinks : {false, true}) {
      const std::vector<float> sinks = with_sinks ? random_floats(kHeads, 8) : std::vector<float>();
      std::vector<float> out((kPositions - kFirst) * kHeads * kDim, kPoison);
      ops.attention({.output = {out.data(), kPositions - kFirst, kHeads * kDim},
                     .queries = {queries.data(), kPositions - kFirst, kHeads * kDim},
                     .query_heads = kHeads,
                     .kv_heads = kKvHeads,
                     .cache = {key_pages, value_pages, kPage},
                     .first_position = kFirst,
                     .scale = 0.3f,
                     .window = window,
                     .sinks = sinks});
      for (int64_t t = 0; t < kPositions - kFirst; ++t) {
        const std::vector<float> q(queries.begin() + t * kHeads * kDim,
                                   queries.begin() + (t + 1) * kHeads * kDim);
        const std::vector<double> expected =
            plain_attention(q, keys, values, kFirst + t, kHeads, kKvHeads, kDim, window, sinks);
        for (size_t i = 0; i < expected.size(); ++i) {
          EXPECT_NEAR(out[static_cast<size_t>(t * kHeads * kDim) + i], expected[i], 1e-5);
        }
      }
    }
  }
}

struct Routed {
  std::vector<int> experts;
  std::vector<float> weights;
};

Routed route_one(const std::vector<float>& logits, const RouterRule& rule,
                 const std::vector<float>& bias = {}) {
  std::vector<ExpertId> experts(static_cast<size_t>(rule.top_k), ExpertId(-1));
  Routed result;
  result.weights.assign(experts.size(), kPoison);
  ops.route({.logits = {logits.data(), 1, static_cast<int64_t>(logits.size())},
             .selection_bias = bias,
             .rule = rule,
             .experts = experts,
             .weights = result.weights});
  for (const ExpertId expert : experts) result.experts.push_back(expert.value);
  return result;
}

TEST(ReferenceOps, RouteTakesTheLargestAndBreaksTiesDownwards) {
  const std::vector<float> logits = {1, 3, 3, 0};
  const double sum = std::exp(1.0) + 2 * std::exp(3.0) + 1;
  Routed routed = route_one(logits, {.top_k = 3});
  EXPECT_EQ(routed.experts, (std::vector<int>{1, 2, 0}));
  EXPECT_NEAR(routed.weights[0], std::exp(3.0) / sum, 1e-6);
  EXPECT_NEAR(routed.weights[2], std::exp(1.0) / sum, 1e-6);
  routed = route_one(logits, {.top_k = 2, .renormalise = true, .scale = 3.0f});
  EXPECT_NEAR(routed.weights[0], 1.5, 1e-6);
  EXPECT_NEAR(routed.weights[1], 1.5, 1e-6);
}

TEST(ReferenceOps, SelectionBiasDecidesTheChoiceNotTheWeight) {
  const Routed routed =
      route_one({0, 1, 2}, {.score = ScoreFunction::sigmoid, .top_k = 1}, {1.0f, 0.0f, 0.0f});
  EXPECT_EQ(routed.experts, std::vector<int>{0});
  EXPECT_NEAR(routed.weights[0], 0.5, 1e-6);
}

TEST(ReferenceOps, GroupLimitedRoutingStaysInTheBestGroups) {
  // Groups {0,1} {2,3} {4,5}: by best expert group 2 wins, by the best two group 1 does.
  const std::vector<float> logits = {0, 0, 2.0f, 1.9f, 2.1f, -9};
  RouterRule rule{.score = ScoreFunction::sigmoid, .top_k = 2, .groups = 3, .groups_kept = 1};
  EXPECT_EQ(route_one(logits, rule).experts, (std::vector<int>{4, 5}));
  rule.group_score = GroupScore::best_two;
  EXPECT_EQ(route_one(logits, rule).experts, (std::vector<int>{2, 3}));
}

TEST(ReferenceOps, RouteSurvivesNan) {
  const Routed routed = route_one({kPoison, 1, kPoison, 2, 3, kPoison, 0, 1},
                                  {.top_k = 4, .groups = 2, .groups_kept = 1});
  for (const int expert : routed.experts) EXPECT_TRUE(expert >= 0 && expert < 8);
}

TEST(ReferenceOps, GateAppliesTheActivationToTheGateOnly) {
  const std::vector<float> up = {2, 2, 2};
  const auto gated = [&](Activation activation) {
    std::vector<float> gate = {-1, 0, 1.5f};
    ops.gate({gate.data(), 1, 3}, {up.data(), 1, 3}, activation);
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

}  // namespace
}  // namespace klotski
