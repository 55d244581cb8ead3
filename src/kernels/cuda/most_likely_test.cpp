#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "kernels/cuda/testing.h"

namespace klotski {
namespace {

using GpuMostLikely = GpuTest;

std::vector<TokenId> found(const Processor& ops, const std::vector<float>& logits, int64_t width) {
  const auto rows = static_cast<int64_t>(logits.size()) / width;
  const DeviceArray<float> in{std::span<const float>(logits)};
  const DeviceArray<TokenId> out{
      std::span<const TokenId>(std::vector<TokenId>(static_cast<size_t>(rows), TokenId{-7}))};
  ops.most_likely(out.span(), {in.data(), rows, width});
  return out.download();
}

std::vector<TokenId> expected(const std::vector<float>& logits, int64_t width) {
  const auto rows = static_cast<int64_t>(logits.size()) / width;
  std::vector<TokenId> tokens(static_cast<size_t>(rows));
  reference_processor().most_likely(tokens, {logits.data(), rows, width});
  return tokens;
}

TEST_F(GpuMostLikely, IsThatOfTheReference) {
  for (const int64_t width : {1, 2, 31, 512, 513, 32000, 151936}) {
    const std::vector<float> logits = random_floats(9 * width, static_cast<uint64_t>(width));
    EXPECT_EQ(found(ops(), logits, width), expected(logits, width)) << width;
  }
}

TEST_F(GpuMostLikely, OfEqualOnesTheFirst) {
  std::mt19937_64 random(3);
  constexpr int64_t kWidth = 4000;
  std::vector<float> logits(static_cast<size_t>(20 * kWidth));
  for (float& logit : logits) logit = static_cast<float>(random() % 5);
  EXPECT_EQ(found(ops(), logits, kWidth), expected(logits, kWidth));
}

TEST_F(GpuMostLikely, BrokenRowsHaveNone) {
  constexpr int64_t kWidth = 3000;
  std::mt19937_64 random(4);
  for (const float broken : {std::nanf(""), INFINITY}) {
    std::vector<float> logits = random_floats(6 * kWidth, 8);
    for (int64_t row = 0; row < 6; row += 2) {
      logits[static_cast<size_t>(row * kWidth) + random() % kWidth] = broken;
    }
    EXPECT_EQ(found(ops(), logits, kWidth), expected(logits, kWidth));
  }
  const std::vector<float> nothing(static_cast<size_t>(kWidth), -INFINITY);
  EXPECT_EQ(found(ops(), nothing, kWidth), (std::vector<TokenId>{-1}));
  std::vector<float> one = nothing;
  one[2999] = -1e30f;
  EXPECT_EQ(found(ops(), one, kWidth), (std::vector<TokenId>{2999}));
}

}  // namespace
}  // namespace klotski
