#include "base/thread_pool.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <set>
#include <stdexcept>

namespace klotski {
namespace {

TEST(ThreadPool, CoversEveryIndexOnce) {
  for (int threads = 1; threads <= 4; ++threads) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.threads(), threads);
    for (int64_t count : {0, 1, 2, 3, 7, 16, 17, 1000}) {
      std::vector<std::atomic<int>> visits(static_cast<size_t>(count));
      pool.parallel_for(count, [&](int64_t begin, int64_t end) {
        ASSERT_LT(begin, end);
        for (int64_t i = begin; i < end; ++i) ++visits[static_cast<size_t>(i)];
      });
      EXPECT_TRUE(std::all_of(visits.begin(), visits.end(), [](const auto& v) { return v == 1; }));
    }
  }
}

TEST(ThreadPool, RangesOfHugeCountsDoNotOverflow) {
  ThreadPool pool(3);
  std::atomic<int64_t> covered{0};
  pool.parallel_for(INT64_MAX, [&](int64_t begin, int64_t end) { covered += end - begin; });
  EXPECT_EQ(covered, INT64_MAX);
}

TEST(ThreadPool, ManyShortLoopsSeeEachOthersWrites) {
  ThreadPool pool(4);
  std::vector<int64_t> numbers(64, 0);
  constexpr int kRounds = 70000;  // more than the counter of rounds holds
  for (int round = 0; round < kRounds; ++round) {
    pool.parallel_for(64, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) ++numbers[static_cast<size_t>(i)];
    });
  }
  EXPECT_EQ(numbers, std::vector<int64_t>(64, kRounds));
}

TEST(ThreadPool, WakesWorkersThatSleep) {
  ThreadPool pool(2);
  std::mutex mutex;
  std::set<std::thread::id> seen;
  for (int round = 0; round < 20; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));  // far beyond the spinning
    std::atomic<int> arrived{0};
    pool.parallel_for(2, [&](int64_t, int64_t) {
      ++arrived;
      while (arrived < 2) std::this_thread::yield();  // only two threads together can leave
      const std::lock_guard lock(mutex);
      seen.insert(std::this_thread::get_id());
    });
  }
  EXPECT_EQ(seen.size(), 2u);
}

TEST(ThreadPool, TheFirstExceptionReachesTheCallerAndThePoolLivesOn) {
  ThreadPool pool(3);
  for (int round = 0; round < 50; ++round) {
    EXPECT_THROW(pool.parallel_for(100, [](int64_t, int64_t) { throw std::runtime_error("no"); }),
                 std::runtime_error);
    EXPECT_THROW(pool.parallel_for(100,
                                   [](int64_t begin, int64_t end) {
                                     if (begin <= 70 && 70 < end) throw std::logic_error("70");
                                   }),
                 std::logic_error);
    std::atomic<int64_t> sum{0};
    pool.parallel_for(10, [&](int64_t begin, int64_t end) { sum += end - begin; });
    EXPECT_EQ(sum, 10);
  }
}

TEST(ThreadPool, NestedAndConcurrentCallsAreServed) {
  ThreadPool pool(3);
  std::atomic<int64_t> sum{0};
  const auto nested = [&] {
    for (int round = 0; round < 100; ++round) {
      pool.parallel_for(8, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          pool.parallel_for(5, [&](int64_t b, int64_t e) { sum += e - b; });
        }
      });
    }
  };
  std::thread other(nested);
  nested();
  other.join();
  EXPECT_EQ(sum, 2 * 100 * 8 * 5);
}

TEST(ThreadPool, OpensAndClosesAtAnyMoment) {
  for (int round = 0; round < 200; ++round) {
    ThreadPool pool(1 + round % 4);
    if (round % 3 == 0) pool.parallel_for(9, [](int64_t, int64_t) {});
  }
}

TEST(ThreadPool, AForkedChildComputesAloneAndEnds) {
  ThreadPool pool(3);
  pool.parallel_for(9, [](int64_t, int64_t) {});
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    int64_t sum = 0;
    pool.parallel_for(9, [&](int64_t begin, int64_t end) { sum += end - begin; });
    ::_exit(sum == 9 ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

}  // namespace
}  // namespace klotski
