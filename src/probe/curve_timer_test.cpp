#include "probe/curve_timer.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "base/bytes.h"

namespace klotski {
namespace {

void sleep_milliseconds(int64_t count) {
  std::this_thread::sleep_for(std::chrono::milliseconds(count));
}

std::function<std::function<void()>(int64_t)> sleeping(int64_t milliseconds_each) {
  return [=](int64_t size) -> std::function<void()> {
    return [=] { sleep_milliseconds(milliseconds_each * size); };
  };
}

uint64_t no_bytes(int64_t) { return 0; }

TEST(CurveTimer, TimesEachSizeAndScales) {
  Tier tier("test", kMiB);
  const ProbeLimits limits;
  const Curve curve = CurveTimer(tier, limits, reference_ops())(
      {.sizes = {1, 4}, .bytes = no_bytes, .make = sleeping(2), .scale = 10.0});
  ASSERT_EQ(curve.sizes().size(), 2u);
  EXPECT_GE(curve.at(1), 0.020);
  EXPECT_GE(curve.at(4), 0.080);
  EXPECT_LT(curve.at(4), 0.8);
}

TEST(CurveTimer, TheFirstCallDoesNotCount) {
  int calls = 0;
  const double seconds =
      seconds_of([&] { sleep_milliseconds(calls++ == 0 ? 100 : 1); }, 0.0, reference_ops().memory);
  EXPECT_LT(seconds, 0.05);
  EXPECT_EQ(calls, 4);
}

TEST(CurveTimer, ALongCallIsMadeOnce) {
  int calls = 0;
  seconds_of([&] { ++calls; }, 0.9, reference_ops().memory);
  EXPECT_EQ(calls, 1);
}

TEST(CurveTimer, ShortCallsAreRepeated) {
  int calls = 0;
  seconds_of([&] { ++calls; }, 0.0, reference_ops().memory);
  EXPECT_GT(calls, 100);
}

TEST(CurveTimer, StopsWhereACallWouldTakeTooLong) {
  Tier tier("test", kMiB);
  ProbeLimits limits;
  limits.longest_call_seconds = 0.030;
  const SizedWork linear{.sizes = {1, 8, 64}, .bytes = no_bytes, .make = sleeping(1)};
  EXPECT_EQ(CurveTimer(tier, limits, reference_ops())(linear).sizes().size(), 2u);
  SizedWork square = linear;
  square.growth = 2.0;  // 8 is taken for 64 times 1
  EXPECT_EQ(CurveTimer(tier, limits, reference_ops())(square).sizes().size(), 1u);
}

TEST(CurveTimer, StopsWhereMemoryEndsButMeasuresTheFirst) {
  Tier tier("test", 1000);
  const ProbeLimits limits;
  const auto bytes = [](int64_t size) { return static_cast<uint64_t>(size) * 300; };
  EXPECT_EQ(CurveTimer(tier, limits, reference_ops())(
                {.sizes = {1, 2, 3, 4}, .bytes = bytes, .make = sleeping(0)})
                .sizes()
                .size(),
            3u);
  EXPECT_EQ(CurveTimer(tier, limits,
                       reference_ops())({.sizes = {5, 6}, .bytes = bytes, .make = sleeping(0)})
                .sizes()
                .size(),
            1u);
  EXPECT_LE(tier.peak_bytes(), 1000u);
  EXPECT_EQ(tier.used_bytes(), 0u);
}

}  // namespace
}  // namespace klotski
