#include "synth/tensor_fill.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/noise.h"
#include "model/config.h"
#include "model/families/shapes.h"
#include "tensor/half.h"

namespace klotski {
namespace {

class TensorFillTest : public ::testing::Test {
 protected:
  TensorFillTest()
      : model_(parse_config(
            shape_config("qwen1.5-moe-a2.7b,L=2,H=64,F=48,E=16,K=4,shared=32,vocab=300", 300)
                .dump(),
            "c")) {}

  std::vector<TensorSpec> specs() const {
    std::vector<TensorSpec> all = model_tensors(model_);
    for (const auto& more :
         {attention_tensors(model_, LayerId(1)), gate_tensors(model_, LayerId(1)),
          expert_tensors(model_, LayerId(1), ExpertId(3))}) {
      all.insert(all.end(), more.begin(), more.end());
    }
    return all;
  }
  TensorSpec spec_of(Role role) const {
    for (const TensorSpec& spec : specs()) {
      if (spec.role == role) return spec;
    }
    ADD_FAILURE() << "no such role";
    return {};
  }
  static std::vector<std::byte> all_of(const TensorFill& fill, const TensorSpec& spec,
                                       DType dtype) {
    uint64_t bytes = 0;
    EXPECT_TRUE(byte_count(spec.shape, dtype, &bytes));
    std::vector<std::byte> out(bytes);
    fill.fill(spec, LayerId(1), {.dtype = dtype, .first = 0, .out = out});
    return out;
  }
  std::vector<float> floats(Role role, uint64_t seed = 1, double share = 0.5) const {
    const TensorSpec spec = spec_of(role);
    const auto bytes = all_of(TensorFill(model_, seed, share), spec, DType::F32);
    std::vector<float> values(bytes.size() / 4);
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }

  ModelDescription model_;
};

double deviation(const std::vector<float>& values) {
  double sum = 0, squares = 0;
  for (const float value : values) sum += value, squares += double{value} * value;
  const auto count = static_cast<double>(values.size());
  EXPECT_LT(std::abs(sum / count), 0.1 * std::sqrt(squares / count));
  return std::sqrt(squares / count);
}

TEST_F(TensorFillTest, AnyPieceIsThatOfTheWhole) {
  for (const DType dtype : {DType::BF16, DType::F16, DType::F32}) {
    const TensorFill fill(model_, 5, 0.6);
    const auto size = static_cast<size_t>(bytes_per_element(dtype));
    for (const TensorSpec& spec : specs()) {
      const std::vector<std::byte> whole = all_of(fill, spec, dtype);
      const size_t elements = whole.size() / size;
      for (const size_t first : {elements / 3, elements - 1, size_t{0}}) {
        std::vector<std::byte> piece(std::min<size_t>(elements - first, 77) * size);
        fill.fill(spec, LayerId(1), {.dtype = dtype, .first = first, .out = piece});
        EXPECT_EQ(std::memcmp(piece.data(), whole.data() + first * size, piece.size()), 0)
            << spec.name;
      }
    }
  }
}

TEST_F(TensorFillTest, SizesAreAsMeant) {
  for (const float value : floats(Role::attention_norm)) EXPECT_EQ(value, 1.0f);
  EXPECT_NEAR(deviation(floats(Role::query)), 1 / std::sqrt(64.0), 0.01);
  EXPECT_NEAR(deviation(floats(Role::expert_up)), 1 / std::sqrt(64.0), 0.01);
  EXPECT_NEAR(deviation(floats(Role::expert_down)), 0.5 / std::sqrt(2 * 48.0), 0.005);
  EXPECT_NEAR(deviation(floats(Role::query_bias)), 0.02, 0.006);
  EXPECT_NEAR(deviation(floats(Role::embedding)), 1.0, 0.03);
  EXPECT_NEAR(deviation(floats(Role::output)), 3 / std::sqrt(64.0 * 0.91), 0.02);
}

TEST_F(TensorFillTest, AShareChangesTheRouterOnlyAlongTheCommonVector) {
  const std::vector<float> skewed = floats(Role::router, 1, 0.6);
  const std::vector<float> even = floats(Role::router, 1, 0.25);
  const std::vector<float> output = floats(Role::output);
  std::vector<float> common(64);
  for (size_t i = 0; i < 64; ++i) common[i] = skewed[i] > even[i] ? 1.0f : -1.0f;
  double least = 1e9, most = 0;
  for (size_t e = 0; e < 16; ++e) {
    double along = 0, along_even = 0, along_output = 0;
    for (size_t i = 0; i < 64; ++i) {
      along += skewed[e * 64 + i] * common[i];
      along_even += even[e * 64 + i] * common[i];
      along_output += output[e * 64 + i] * common[i];
    }
    EXPECT_NEAR(along_even, 0, 1e-5);
    EXPECT_NEAR(along_output, 0, 1e-5);
    least = std::min(least, along);
    most = std::max(most, along);
  }
  EXPECT_GT(least, 0.1);
  EXPECT_NEAR(most / least, (4.0 + 15.0) / 4.0, 1e-3);  // ranks 0 and 15
}

TEST_F(TensorFillTest, SeedsAndNamesGiveOtherValues) {
  EXPECT_EQ(floats(Role::query, 1), floats(Role::query, 1));
  EXPECT_NE(floats(Role::query, 1), floats(Role::query, 2));
  EXPECT_NE(floats(Role::key, 1), floats(Role::value, 1));
}

// Computed once: every machine and compiler must give these.
TEST_F(TensorFillTest, BytesAreTheSameOnEveryMachine) {
  for (const auto& [share, expected] : {std::pair(0.55, uint64_t{9436965724086781584u}),
                                        std::pair(0.9, uint64_t{15679692175370164290u})}) {
    const TensorFill fill(model_, 42, share);
    uint64_t hash = 0;
    for (const TensorSpec& spec : specs()) {
      for (const std::byte byte : all_of(fill, spec, DType::BF16))
        hash = mix(hash ^ static_cast<uint64_t>(byte)) + 1;
    }
    EXPECT_EQ(hash, expected);
  }
}

TEST(Popularity, StrengthGrowsWithTheShare) {
  using Kind = std::pair<int64_t, int64_t>;
  for (const auto& [experts, top_k] : {Kind(8, 2), Kind(128, 8), Kind(2, 1), Kind(1000, 1)}) {
    const double even = static_cast<double>(top_k) / static_cast<double>(experts);
    EXPECT_EQ(popularity_for_share(experts, top_k, even).strength, 0.0);
    double before = 0.0;
    for (const double part : {0.2, 0.5, 0.8, 0.97}) {
      const double share = even + (1 - even) * part;
      const double strength = popularity_for_share(experts, top_k, share).strength;
      EXPECT_GT(strength, before) << experts << " " << share;
      before = strength;
    }
  }
}

TEST(Popularity, RanksAreAPermutation) {
  for (int64_t experts : {1, 2, 8, 100}) {
    std::vector<int64_t> ranks = ranks_of_experts(9, experts);
    std::sort(ranks.begin(), ranks.end());
    for (int64_t i = 0; i < experts; ++i) EXPECT_EQ(ranks[static_cast<size_t>(i)], i);
  }
  EXPECT_NE(ranks_of_experts(1, 16), ranks_of_experts(2, 16));
}

TEST(Noise, IsNearlyNormal) {
  constexpr int kCount = 200'000;
  double sum = 0, squares = 0, product = 0;
  int beyond = 0;
  for (uint64_t i = 0; i < kCount; ++i) {
    const double value = noise(noise_key(3, "x"), i) / noise_deviation();
    sum += value;
    squares += value * value;
    product += value * noise(noise_key(3, "y"), i) / noise_deviation();
    if (std::abs(value) > 1.96) ++beyond;
  }
  EXPECT_NEAR(sum / kCount, 0, 0.01);
  EXPECT_NEAR(squares / kCount, 1, 0.01);
  EXPECT_NEAR(product / kCount, 0, 0.01);
  EXPECT_NEAR(static_cast<double>(beyond) / kCount, 0.05, 0.01);
}

}  // namespace
}  // namespace klotski
