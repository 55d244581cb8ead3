#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "kernels/cuda/testing.h"
#include "kernels/ops.h"

namespace klotski {
namespace {

class CudaRope : public GpuTest {};

struct Case {
  int64_t tokens, heads, head_dim, pairs, tables;
  bool interleaved;
  float scale;
  int64_t begin = 0;  // RopeArguments::first
};

struct Inputs {
  std::vector<float> heads, frequencies;
  std::vector<int32_t> positions, tables;

  Inputs(std::mt19937& random, const Case& shape)
      : heads(random_floats(random, shape.tokens * shape.heads * shape.head_dim)) {
    for (int64_t table = 0; table < shape.tables; ++table) {
      for (int64_t pair = 0; pair < shape.pairs; ++pair) {
        const double exponent = -static_cast<double>(pair) / static_cast<double>(shape.pairs);
        const double frequency = std::pow(1e6, exponent) / static_cast<double>(table + 1);
        frequencies.push_back(static_cast<float>(frequency));
      }
    }
    for (int64_t token = 0; token < shape.tokens; ++token) {
      positions.push_back(static_cast<int32_t>(random() % 200'000));  // past the fast sine's range
      tables.push_back(static_cast<int32_t>(random() % static_cast<unsigned>(shape.tables)));
    }
  }
};

// The angle is a float32 product, everything after it exact.
std::vector<float> rotated(const Inputs& inputs, const Case& shape) {
  std::vector<float> heads = inputs.heads;
  for (int64_t row = 0; row < shape.tokens * shape.heads; ++row) {
    const auto token = static_cast<size_t>(row / shape.heads);
    for (int64_t pair = 0; pair < shape.pairs; ++pair) {
      const float frequency =
          inputs.frequencies[static_cast<size_t>(inputs.tables[token] * shape.pairs + pair)];
      const float angle = static_cast<float>(inputs.positions[token]) * frequency;
      const double cosine = std::cos(double{angle}) * double{shape.scale};
      const double sine = std::sin(double{angle}) * double{shape.scale};
      const int64_t first = shape.begin + (shape.interleaved ? 2 * pair : pair);
      const int64_t second = first + (shape.interleaved ? 1 : shape.pairs);
      float& a = heads[static_cast<size_t>(row * shape.head_dim + first)];
      float& b = heads[static_cast<size_t>(row * shape.head_dim + second)];
      const double old_a = a;
      const double old_b = b;
      a = static_cast<float>(old_a * cosine - old_b * sine);
      b = static_cast<float>(old_b * cosine + old_a * sine);
    }
  }
  return heads;
}

TEST_F(CudaRope, RotatesPairsByTheirTokensTable) {
  const Case cases[] = {{1, 1, 2, 1, 1, false, 1.0f},     {1, 32, 128, 64, 1, false, 1.0f},
                        {3, 5, 7, 2, 2, false, 1.3f},     {3, 5, 7, 3, 2, true, 0.7f},
                        {64, 8, 80, 16, 3, false, 1.0f},  {17, 9, 64, 32, 1, true, 1.0f},
                        {300, 4, 96, 48, 2, false, 1.1f}, {2, 1, 6, 1, 1, false, 1.0f},
                        {5, 3, 24, 4, 2, true, 1.2f, 16}, {5, 3, 24, 4, 1, false, 1.0f, 13}};
  std::mt19937 random(1);
  for (const Case& shape : cases) {
    SCOPED_TRACE(testing::Message() << shape.tokens << " tokens, " << shape.heads << " heads of "
                                    << shape.head_dim << ", " << shape.pairs << " pairs");
    const Inputs inputs(random, shape);
    DeviceArray<float> heads{std::span<const float>(inputs.heads)};
    DeviceArray<float> frequencies{std::span<const float>(inputs.frequencies)};
    DeviceArray<int32_t> positions{std::span<const int32_t>(inputs.positions)};
    DeviceArray<int32_t> tables{std::span<const int32_t>(inputs.tables)};
    ops().rope({.heads = {heads.data(), shape.tokens, shape.heads * shape.head_dim},
                .head_dim = shape.head_dim,
                .pairs = shape.pairs,
                .first = shape.begin,
                .positions = positions.span(),
                .frequencies = frequencies.span(),
                .tables = tables.span(),
                .scale = shape.scale,
                .interleaved = shape.interleaved});
    const std::vector<float> found = heads.download();
    const std::vector<float> expected = rotated(inputs, shape);
    ASSERT_EQ(found.size(), expected.size());
    for (size_t i = 0; i < found.size(); ++i) {
      ASSERT_NEAR(found[i], expected[i], 4e-6) << "element " << i;
    }
  }
}

TEST_F(CudaRope, TakesNoTokens) {
  DeviceArray<float> heads(size_t{4});
  RopeArguments none;
  none.heads = {heads.data(), 0, 4};
  none.head_dim = 4;
  none.pairs = 2;
  ops().rope(none);
  ops().memory.finish();
}

}  // namespace
}  // namespace klotski
