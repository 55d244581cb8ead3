#include "memory/tier.h"

#include <gtest/gtest.h>

#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"

namespace klotski {
namespace {

TEST(Tier, CountsByKindWithPeaks) {
  Tier tier("ram", 1000);
  {
    const Reservation a = tier.reserve("weights", 600);
    const Reservation b = tier.reserve("cache", 300);
    const Reservation c = tier.reserve("weights", 100);
    EXPECT_EQ(tier.used_bytes(), 1000u);
  }
  const Reservation d = tier.reserve("cache", 50);
  EXPECT_EQ(d.bytes(), 50u);
  EXPECT_EQ(tier.used_bytes(), 50u);
  EXPECT_EQ(tier.peak_bytes(), 1000u);
  EXPECT_EQ(tier.limit_bytes(), 1000u);
  const std::vector<TierUse> uses = tier.uses();
  ASSERT_EQ(uses.size(), 2u);
  EXPECT_EQ(uses[0].kind, "weights");
  EXPECT_EQ(uses[0].bytes, 0u);
  EXPECT_EQ(uses[0].peak, 700u);
  EXPECT_EQ(uses[1].kind, "cache");
  EXPECT_EQ(uses[1].bytes, 50u);
  EXPECT_EQ(uses[1].peak, 300u);
}

TEST(Tier, RefusesWhatDoesNotFitAndSaysWhy) {
  Tier tier("vram", 1000);
  const Reservation held = tier.reserve("weights", 900);
  for (const uint64_t asked : {uint64_t{101}, uint64_t{1000}, UINT64_MAX}) {
    try {
      const Reservation more = tier.reserve("pages", asked);
      FAIL() << asked;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::does_not_fit);
      const std::string message = error.what();
      for (const std::string& part :
           {std::string("vram"), std::string("pages"), std::to_string(asked), std::string("900"),
            std::string("1000")}) {
        EXPECT_NE(message.find(part), std::string::npos) << message;
      }
    }
  }
  EXPECT_EQ(tier.used_bytes(), 900u);
  EXPECT_EQ(tier.uses().size(), 1u);
  EXPECT_EQ(tier.reserve("pages", 100).bytes(), 100u);
}

TEST(Tier, MovingAReservationMovesItsBytesOnce) {
  Tier tier("ram", 100);
  Reservation a = tier.reserve("x", 60);
  Reservation b = std::move(a);
  EXPECT_EQ(tier.used_bytes(), 60u);
  Reservation c = tier.reserve("y", 40);
  c = std::move(b);  // gives back the 40
  EXPECT_EQ(c.bytes(), 60u);
  EXPECT_EQ(tier.used_bytes(), 60u);
  c = Reservation();
  EXPECT_EQ(tier.used_bytes(), 0u);
}

TEST(Tier, ThreadsNeverPassTheLimit) {
  Tier tier("ram", 1000);
  std::vector<std::thread> threads;
  for (unsigned seed = 0; seed < 4; ++seed) {
    threads.emplace_back([&tier, seed] {
      std::mt19937 random(seed);
      std::vector<Reservation> held;
      for (int i = 0; i < 3000; ++i) {
        if (held.size() > random() % 8) held.erase(held.begin());
        try {
          held.push_back(tier.reserve(random() % 2 == 0 ? "a" : "b", random() % 300));
        } catch (const Error&) {
          held.clear();
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(tier.used_bytes(), 0u);
  EXPECT_GT(tier.peak_bytes(), 500u);
  EXPECT_LE(tier.peak_bytes(), 1000u);
  for (const TierUse& use : tier.uses()) EXPECT_EQ(use.bytes, 0u);
}

}  // namespace
}  // namespace klotski
