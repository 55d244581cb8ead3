#include "base/stall_watch.h"

#include <gtest/gtest.h>

namespace klotski {
namespace {

using Verdict = StallWatch::Verdict;
using std::chrono::seconds;

// Looks at work on a clock of its own.
class Watched {
 public:
  explicit Watched(seconds limit) : watch(limit, 0, now_) {}

  Verdict after(std::chrono::nanoseconds time, uint64_t ended = 0) {
    now_ += time;
    return watch.look(ended, now_);
  }

 private:
  StallWatch::Clock::time_point now_{};

 public:
  StallWatch watch;
};

TEST(StallWatch, TellsOnceAtHalfOfTheLimitAndThenAtTheLimit) {
  Watched work(seconds(160));
  ASSERT_EQ(work.watch.look_every(), seconds(10));
  for (int look = 1; look < 8; ++look) ASSERT_EQ(work.after(seconds(10)), Verdict::goes_on) << look;
  EXPECT_EQ(work.after(seconds(10)), Verdict::slow);
  for (int look = 9; look < 16; ++look) {
    ASSERT_EQ(work.after(seconds(10)), Verdict::goes_on) << look;
  }
  EXPECT_EQ(work.after(seconds(10)), Verdict::stalled);
  EXPECT_EQ(work.watch.still(), seconds(160));
}

TEST(StallWatch, BeginsAnewWhenSomethingEnds) {
  Watched work(seconds(160));
  for (uint64_t ended = 1; ended < 100; ++ended) {
    ASSERT_EQ(work.after(seconds(20), ended), Verdict::goes_on);
    for (int look = 0; look < 3; ++look) {
      ASSERT_EQ(work.after(seconds(20), ended), Verdict::goes_on);
    }
    ASSERT_EQ(work.after(seconds(20), ended), Verdict::slow) << "told once for each stillness";
  }
}

// A program that somebody stops and lets go on, hours later, has not waited for hours.
TEST(StallWatch, CountsNoTimeInWhichNobodyLooked) {
  Watched work(seconds(160));
  EXPECT_EQ(work.after(std::chrono::hours(100)), Verdict::goes_on);
  EXPECT_EQ(work.watch.still(), seconds(20));
}

TEST(StallWatch, WithoutALimitWaitsForEver) {
  Watched work(seconds(0));
  for (int look = 0; look < 100; ++look) {
    ASSERT_EQ(work.after(std::chrono::hours(1000)), Verdict::goes_on);
  }
}

}  // namespace
}  // namespace klotski
