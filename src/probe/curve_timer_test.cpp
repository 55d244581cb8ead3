#include "probe/curve_timer.h"

#include <gtest/gtest.h>

#include "base/bytes.h"
#include "kernels/testing.h"

namespace klotski {
namespace {

// A clock that only the timed calls move on.
double seconds_passed = 0;
double now() { return seconds_passed; }

std::function<std::function<void()>(int64_t)> taking(double seconds_each) {
  return [=](int64_t size) -> std::function<void()> {
    return [=] { seconds_passed += seconds_each * static_cast<double>(size); };
  };
}

uint64_t no_bytes(int64_t) { return 0; }

TEST(CurveTimer, TimesEachSizeAndScales) {
  Tier tier("test", kMiB);
  const ProbeLimits limits;
  const Curve curve = CurveTimer(tier, limits, reference_processor(), now)(
      {.sizes = {1, 4}, .bytes = no_bytes, .make = taking(0.002), .scale = 10.0});
  ASSERT_EQ(curve.sizes().size(), 2u);
  EXPECT_NEAR(curve.at(1), 0.020, 1e-9);
  EXPECT_NEAR(curve.at(4), 0.080, 1e-9);
}

TEST(CurveTimer, TheFirstCallDoesNotCount) {
  int calls = 0;
  const auto call = [&] { seconds_passed += calls++ == 0 ? 0.1 : 0.001; };
  EXPECT_NEAR(seconds_of(call, 0.0, reference_processor().memory, now), 0.001, 1e-9);
  EXPECT_EQ(calls, 4);
}

TEST(CurveTimer, ALongCallIsMadeOnce) {
  int calls = 0;
  seconds_of([&] { ++calls; }, 0.9, reference_processor().memory, now);
  EXPECT_EQ(calls, 1);
}

TEST(CurveTimer, ShortCallsAreRepeated) {
  int calls = 0;
  seconds_of([&] { ++calls; }, 0.0, reference_processor().memory, now);
  EXPECT_GT(calls, 100);
}

TEST(CurveTimer, StopsWhereACallWouldTakeTooLong) {
  Tier tier("test", kMiB);
  ProbeLimits limits;
  limits.longest_call_seconds = 0.030;
  const SizedWork linear{.sizes = {1, 8, 64}, .bytes = no_bytes, .make = taking(0.001)};
  EXPECT_EQ(CurveTimer(tier, limits, reference_processor(), now)(linear).sizes().size(), 2u);
  SizedWork square = linear;
  square.growth = 2.0;  // 8 is taken for 64 times 1
  EXPECT_EQ(CurveTimer(tier, limits, reference_processor(), now)(square).sizes().size(), 1u);
}

TEST(CurveTimer, StopsWhereMemoryEndsButMeasuresTheFirst) {
  Tier tier("test", 1000);
  const ProbeLimits limits;
  const auto bytes = [](int64_t size) { return static_cast<uint64_t>(size) * 300; };
  EXPECT_EQ(CurveTimer(tier, limits, reference_processor(),
                       now)({.sizes = {1, 2, 3, 4}, .bytes = bytes, .make = taking(0)})
                .sizes()
                .size(),
            3u);
  EXPECT_EQ(CurveTimer(tier, limits, reference_processor(),
                       now)({.sizes = {5, 6}, .bytes = bytes, .make = taking(0)})
                .sizes()
                .size(),
            1u);
  EXPECT_LE(tier.peak_bytes(), 1000u);
  EXPECT_EQ(tier.used_bytes(), 0u);
}

}  // namespace
}  // namespace klotski
