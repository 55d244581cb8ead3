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
  EXPECT_FALSE(takes_linear_time([](int64_t size) { spend(size * size); }, 1500));
}

TEST(Trials, FollowTheEnvironment) {
  const char* before = std::getenv("KLOTSKI_TRIALS");
  const std::string kept = before == nullptr ? "" : before;
  unsetenv("KLOTSKI_TRIALS");
  EXPECT_EQ(trials(250), 250);
  setenv("KLOTSKI_TRIALS", "0.1", 1);
  EXPECT_EQ(trials(250), 25);
  EXPECT_EQ(trials(3), 1) << "one at least";
  setenv("KLOTSKI_TRIALS", "20", 1);
  EXPECT_EQ(trials(250), 5000);
  unsetenv("KLOTSKI_TRIALS");
  if (before != nullptr) setenv("KLOTSKI_TRIALS", kept.c_str(), 1);
}

}  // namespace
}  // namespace klotski
