// The fast operations against the reference, and each row against itself computed in other company.

#include "kernels/cpu/cpu_ops.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "kernels/cpu/kernels.h"
#include "tensor/half.h"

namespace klotski {
namespace {

constexpr float kPoison = std::numeric_limits<float>::quiet_NaN();

std::vector<float> random_floats(int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = normal(random);
  return values;
}

// A weight matrix in one of the stored types.
struct Weights {
  std::vector<std::byte> bytes;
  TensorView view;

  Weights(const std::vector<float>& values, DType dtype, Shape shape) {
    bytes.resize(values.size() * (dtype == DType::F32 ? 4 : 2));
    for (size_t i = 0; i < values.size(); ++i) {
      if (dtype == DType::F32) {
        std::memcpy(&bytes[i * 4], &values[i], 4);
      } else {
        const uint16_t bits =
            dtype == DType::F16 ? float_to_f16(values[i]) : float_to_bf16(values[i]);
        std::memcpy(&bytes[i * 2], &bits, 2);
      }
    }
    view = {bytes.data(), dtype, std::move(shape)};
  }
};

// Every instruction set this processor has, with one to four threads.
template <typename Check>
void with_every_machine(const Check& check) {
  for (int threads = 1; threads <= 4; ++threads) {
    ThreadPool pool(threads);
    for (int i = 0; i < cpu::all_kernels().count; ++i) {
      const cpu::Kernels& kernels = *cpu::all_kernels().begin[i];
      SCOPED_TRACE(std::string(kernels.name) + ", threads: " + std::to_string(threads));
      check(cpu::Machine{kernels, pool}, threads);
    }
  }
}

// Relative to the size of what was added up, not to a sum that may cancel.
void expect_close(const std::vector<float>& found, const std::vector<float>& expected,
                  double magnitude) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    ASSERT_NEAR(found[i], expected[i], 1e-5 * magnitude) << "element " << i;
  }
}

bool same_bits(const float* a, const float* b, int64_t count) {
  return std::memcmp(a, b, static_cast<size_t>(count) * sizeof(float)) == 0;
}

struct MatmulShape {
  int64_t rows, in, out;
};

TEST(CpuOps, MatmulAgreesWithTheReference) {
  const std::vector<MatmulShape> shapes = {{1, 1, 1},     {1, 3, 5},    {2, 17, 3},   {3, 64, 16},
                                           {4, 33, 17},   {5, 512, 9},  {7, 513, 33}, {8, 1030, 40},
                                           {13, 1024, 8}, {64, 100, 70}};
  with_every_machine([&](const cpu::Machine& machine, int threads) {
    for (const MatmulShape& s : shapes) {
      for (const DType dtype : {DType::F32, DType::F16, DType::BF16}) {
        const auto seed = static_cast<unsigned>(s.rows * 7 + s.in);
        const std::vector<float> in = random_floats(s.rows * s.in, seed);
        const Weights weight(random_floats(s.out * s.in, seed + 1), dtype, {s.out, s.in});
        const Weights bias(random_floats(s.out, seed + 2), dtype, {s.out});
        for (const bool with_bias : {false, true}) {
          const TensorView offset = with_bias ? bias.view : TensorView();
          std::vector<float> out(static_cast<size_t>(s.rows * s.out), kPoison);
          std::vector<float> expected(out.size());
          cpu::matmul(machine, {out.data(), s.rows, s.out}, {in.data(), s.rows, s.in}, weight.view,
                      offset);
          reference_ops().matmul({expected.data(), s.rows, s.out}, {in.data(), s.rows, s.in},
                                 weight.view, offset);
          SCOPED_TRACE(testing::Message() << s.rows << " rows " << s.in << " to " << s.out << " "
                                          << dtype_name(dtype) << " " << threads);
          expect_close(out, expected, std::sqrt(static_cast<double>(s.in)) + 1);
        }
      }
    }
  });
}

TEST(CpuOps, EveryHalfIsReadExactly) {
  // One column: a product with 1 is the weight itself, for all 65536 patterns; four columns, the
  // other three zero, take the path of whole vectors.
  std::vector<uint16_t> all(65536);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint16_t>(i);
  const std::vector<float> one = {1.0f, 1.0f, 1.0f, 1.0f, 1.0f};
  for (int i = 0; i < cpu::all_kernels().count; ++i) {
    for (const cpu::WeightType type : {cpu::WeightType::f16, cpu::WeightType::bf16}) {
      for (const int64_t rows : {1, 5}) {  // through the registers, and converted first
        std::vector<float> out(all.size() * static_cast<size_t>(rows), kPoison);
        for (int64_t n = 0; n < 65536; n += cpu::kPanelOutputs) {
          cpu::all_kernels().begin[i]->matmul_panel({.out = out.data(),
                                                     .in = one.data(),
                                                     .weight = all.data(),
                                                     .type = type,
                                                     .rows = rows,
                                                     .in_width = 1,
                                                     .out_width = 65536,
                                                     .begin = n,
                                                     .end = n + cpu::kPanelOutputs});
        }
        for (size_t n = 0; n < all.size(); ++n) {
          const float exact =
              type == cpu::WeightType::f16 ? f16_to_float(all[n]) : bf16_to_float(all[n]);
          if (std::isnan(exact)) {
            ASSERT_TRUE(std::isnan(out[n])) << n;
          } else {
            ASSERT_EQ(out[n], exact) << n;
          }
        }
      }
    }
  }
}

TEST(CpuOps, ARowOfAMatmulIsTheSameInAnyCompany) {
  std::mt19937 random(3);
  for (const MatmulShape& shape :
       std::vector<MatmulShape>{{40, 17, 5}, {40, 700, 37}, {40, 1537, 100}}) {
    const int64_t rows_in_all = shape.rows;
    const int64_t in_width = shape.in;
    const int64_t out_width = shape.out;
    for (const DType dtype : {DType::F32, DType::F16, DType::BF16}) {
      const std::vector<float> in = random_floats(rows_in_all * in_width, 1);
      const Weights weight(random_floats(out_width * in_width, 2), dtype, {out_width, in_width});
      std::vector<std::vector<float>> alone(static_cast<size_t>(cpu::all_kernels().count));
      with_every_machine([&](const cpu::Machine& machine, int threads) {
        const auto product = [&](int64_t first, int64_t rows) {
          std::vector<float> out(static_cast<size_t>(rows * out_width), kPoison);
          cpu::matmul(machine, {out.data(), rows, out_width},
                      {in.data() + first * in_width, rows, in_width}, weight.view, {});
          return out;
        };
        std::vector<float> expected;
        for (int64_t row = 0; row < rows_in_all; ++row) {
          const std::vector<float> one = product(row, 1);
          expected.insert(expected.end(), one.begin(), one.end());
        }
        for (int64_t first = 0; first < rows_in_all;) {
          const int64_t rows =
              std::min<int64_t>(1 + static_cast<int64_t>(random() % 12), rows_in_all - first);
          const std::vector<float> batch = product(first, rows);
          ASSERT_TRUE(
              same_bits(batch.data(), expected.data() + first * out_width, rows * out_width))
              << rows << " rows, " << in_width << " to " << out_width;
          first += rows;
        }
        for (size_t i = 0; i < alone.size(); ++i) {
          if (&machine.kernels != cpu::all_kernels().begin[i]) continue;
          if (threads == 1) alone[i] = expected;
          ASSERT_TRUE(same_bits(alone[i].data(), expected.data(), rows_in_all * out_width));
        }
      });
    }
  }
}

// One sequence with `tokens` queries after `past` cached positions, in shuffled pages.
struct AttentionCase {
  int64_t query_heads, kv_heads, head_dim, past, tokens, page_tokens, window;
  bool with_sinks;
  std::vector<float> queries, keys, values, sinks;
  std::vector<const float*> key_pages, value_pages;

  AttentionCase(std::mt19937& random, bool large) {
    const auto up_to = [&](int64_t most) { return 1 + static_cast<int64_t>(random()) % most; };
    kv_heads = up_to(3);
    query_heads = kv_heads * up_to(6);
    head_dim = large ? 16 * up_to(8) : up_to(40);
    past = up_to(large ? 300 : 30) - 1;
    tokens = up_to(large ? 40 : 6);
    page_tokens = up_to(16);
    window = random() % 2 == 0 ? 0 : up_to(past + tokens + 3);
    with_sinks = random() % 2 == 0;
    const int64_t pages = (past + tokens + page_tokens - 1) / page_tokens;
    const int64_t page_floats = page_tokens * kv_heads * head_dim;
    queries = random_floats(tokens * query_heads * head_dim, static_cast<unsigned>(random()));
    keys = random_floats(pages * page_floats, static_cast<unsigned>(random()));
    values = random_floats(pages * page_floats, static_cast<unsigned>(random()));
    if (with_sinks) sinks = random_floats(query_heads, static_cast<unsigned>(random()));
    for (int64_t page = pages; page-- > 0;) {
      key_pages.push_back(keys.data() + page * page_floats);
      value_pages.push_back(values.data() + page * page_floats);
    }
  }

  AttentionArguments arguments(std::vector<float>& out, int64_t first, int64_t count) const {
    const int64_t width = query_heads * head_dim;
    out.assign(static_cast<size_t>(count * width), kPoison);
    return {.output = {out.data(), count, width},
            .queries = {queries.data() + first * width, count, width},
            .query_heads = query_heads,
            .kv_heads = kv_heads,
            .cache = {key_pages, value_pages, page_tokens},
            .first_position = past + first,
            .scale = 1.0f / std::sqrt(static_cast<float>(head_dim)),
            .window = window,
            .sinks = sinks};
  }
};

TEST(CpuOps, AttentionAgreesWithTheReferenceAndWithItselfTokenByToken) {
  std::mt19937 random(5);
  for (int round = 0; round < 60; ++round) {
    const AttentionCase attention(random, round % 6 == 0);
    std::vector<float> expected;
    reference_ops().attention(attention.arguments(expected, 0, attention.tokens));
    with_every_machine([&](const cpu::Machine& machine, int) {
      std::vector<float> out;
      cpu::attention(machine, attention.arguments(out, 0, attention.tokens));
      expect_close(out, expected, 1.0);
      const int64_t width = attention.query_heads * attention.head_dim;
      for (int64_t token = 0; token < attention.tokens; ++token) {
        std::vector<float> one;
        cpu::attention(machine, attention.arguments(one, token, 1));
        ASSERT_TRUE(same_bits(one.data(), out.data() + token * width, width)) << token;
      }
    });
  }
}

TEST(CpuOps, RowwiseOperationsAreThoseOfTheReference) {
  constexpr int64_t kRows = 37;
  constexpr int64_t kWidth = 1001;
  const std::vector<float> in = random_floats(kRows * kWidth, 1);
  const std::vector<float> slots = random_floats(2 * kRows * kWidth, 2);
  const std::vector<float> shares = random_floats(2 * kRows, 3);
  const Weights weight(random_floats(kWidth, 4), DType::BF16, {kWidth});
  const auto run = [&](const auto& operation) {
    std::vector<float> out = in;
    operation(Rows{out.data(), kRows, kWidth});
    return out;
  };
  const ConstRows up(slots.data(), kRows, kWidth);
  const ConstRows both(slots.data(), 2 * kRows, kWidth);
  const Ops& plain = reference_ops();
  const auto norm = run([&](Rows rows) { plain.rms_norm(rows, rows, weight.view, 1e-5f); });
  const auto gate = run([&](Rows rows) { plain.gate(rows, up, Activation::silu); });
  const auto sum = run([&](Rows rows) { plain.combine(rows, both, shares); });
  with_every_machine([&](const cpu::Machine& m, int) {
    EXPECT_EQ(norm, run([&](Rows rows) { cpu::rms_norm(m, rows, rows, weight.view, 1e-5f); }));
    EXPECT_EQ(gate, run([&](Rows rows) { cpu::gate(m, rows, up, Activation::silu); }));
    EXPECT_EQ(sum, run([&](Rows rows) { cpu::combine(m, rows, both, shares); }));
  });
}

TEST(CpuOps, NoRowsAreNoWork) {
  const Weights weight(random_floats(6, 1), DType::F32, {2, 3});
  cpu_ops().matmul({nullptr, 0, 2}, {nullptr, 0, 3}, weight.view, {});
  cpu_ops().gate({nullptr, 0, 2}, {nullptr, 0, 2}, Activation::silu);
  cpu_ops().combine({nullptr, 0, 2}, {nullptr, 0, 2}, {});
}

TEST(CpuOps, ThreadsAreChosenBeforeTheFirstUse) {
  EXPECT_ANY_THROW(set_compute_threads(0));
  cpu::machine();
  EXPECT_ANY_THROW(set_compute_threads(2));
}

}  // namespace
}  // namespace klotski
