#include "probe/repeating.h"

#include <gtest/gtest.h>

#include <stdexcept>

namespace klotski {
namespace {

void sleep_milliseconds(int64_t count) {
  std::this_thread::sleep_for(std::chrono::milliseconds(count));
}

TEST(SecondsEach, OfAsManyCallsAsTakeSoLong) {
  int calls = 0;
  const auto call = [&] {
    ++calls;
    sleep_milliseconds(2);
  };
  EXPECT_GE(seconds_each(call, 0.01), 0.002);
  EXPECT_GE(calls, 1);
  EXPECT_LE(calls, 5);
  calls = 0;
  seconds_each(call, 0.0);
  EXPECT_EQ(calls, 1);
}

TEST(Repeating, UntilItsEnd) {
  std::atomic<int> calls{0};
  Repeating repeating([&] {
    ++calls;
    sleep_milliseconds(1);
  });
  while (calls < 3) sleep_milliseconds(1);
  repeating.end();
  const int64_t made = calls;
  EXPECT_GE(made, 3);
  EXPECT_EQ(repeating.calls(), made);
  EXPECT_GE(repeating.seconds(), 1e-3 * static_cast<double>(made));
  sleep_milliseconds(5);
  EXPECT_EQ(calls, made);
}

TEST(Repeating, OnceAtLeast) {
  for (int round = 0; round < 20; ++round) {
    Repeating repeating([] {});
    repeating.end();
    EXPECT_GE(repeating.calls(), 1);
    EXPECT_GT(repeating.seconds(), 0.0);
  }
}

TEST(Repeating, TheEndThrowsWhatACallThrew) {
  std::atomic<int> calls{0};
  const auto call = [&] {
    if (++calls == 3) throw std::runtime_error("third");
  };
  Repeating repeating(call);
  while (calls < 3) sleep_milliseconds(1);
  EXPECT_THROW(repeating.end(), std::runtime_error);
  EXPECT_EQ(calls, 3);
  EXPECT_EQ(repeating.calls(), 2);
  calls = 0;
  {
    const Repeating unheard(call);
    while (calls < 3) sleep_milliseconds(1);
  }
  EXPECT_EQ(calls, 3);
}

}  // namespace
}  // namespace klotski
