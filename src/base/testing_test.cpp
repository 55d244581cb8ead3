#include "base/testing.h"

#include <gtest/gtest.h>

namespace klotski {
namespace {

void spend(int64_t steps) {
  volatile int64_t sum = 0;
  for (int64_t i = 0; i < steps; ++i) sum = sum + i;
}

TEST(TakesLinearTime, TellsLinesFromSquares) {
  EXPECT_TRUE(takes_linear_time(spend, 200'000));
  EXPECT_TRUE(takes_linear_time([](int64_t size) { spend(1'000'000 + size); }, 1000));
  EXPECT_FALSE(takes_linear_time([](int64_t size) { spend(size * size); }, 500));
}

}  // namespace
}  // namespace klotski
