#include "device/memory_ranges.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

namespace klotski {
namespace {

TEST(MemoryRanges, HoldWhatLiesInOneRange) {
  const std::array<std::byte, 100> memory{};
  const std::byte* at = memory.data();
  MemoryRanges ranges;
  EXPECT_FALSE(ranges.hold(at, 1));
  ranges.add(at + 10, 20);
  ranges.add(at + 30, 20);
  EXPECT_EQ(ranges.total(), 40u);
  EXPECT_TRUE(ranges.hold(at + 10, 20));
  EXPECT_TRUE(ranges.hold(at + 29, 1));
  EXPECT_TRUE(ranges.hold(at + 30, 20));
  EXPECT_FALSE(ranges.hold(at + 9, 2));
  EXPECT_FALSE(ranges.hold(at + 29, 2)) << "from one range into the next";
  EXPECT_FALSE(ranges.hold(at + 49, 2));
  EXPECT_FALSE(ranges.hold(at + 60, 1));
  EXPECT_FALSE(ranges.hold(at + 12, UINT64_MAX)) << "a size that overflows an address";
}

TEST(MemoryRanges, RemoveWhatBeginsThere) {
  const std::array<std::byte, 100> memory{};
  const std::byte* at = memory.data();
  MemoryRanges ranges;
  ranges.add(at + 10, 20);
  EXPECT_EQ(ranges.remove(at + 11), 0u);
  EXPECT_TRUE(ranges.hold(at + 11, 1));
  EXPECT_EQ(ranges.remove(at + 10), 20u);
  EXPECT_EQ(ranges.remove(at + 10), 0u);
  EXPECT_FALSE(ranges.hold(at + 11, 1));
  EXPECT_EQ(ranges.total(), 0u);
}

// Compared with a list that says for each byte which range it belongs to.
TEST(MemoryRanges, AgreeWithAListOfBytes) {
  const std::array<std::byte, 64> memory{};
  std::mt19937 random(7);
  const auto below = [&](size_t bound) { return random() % bound; };
  MemoryRanges ranges;
  std::vector<int> owner(memory.size(), 0);  // 0: none
  for (int turn = 1; turn < 3000; ++turn) {
    const size_t begin = below(memory.size());
    const size_t bytes = 1 + below(std::min<size_t>(memory.size() - begin, 9));
    bool all_free = true, one_owner = owner[begin] != 0;
    for (size_t i = begin; i < begin + bytes; ++i) {
      all_free &= owner[i] == 0;
      one_owner &= owner[i] == owner[begin];
    }
    ASSERT_EQ(ranges.hold(memory.data() + begin, bytes), one_owner);
    if (all_free) {
      ranges.add(memory.data() + begin, bytes);
      std::fill_n(owner.begin() + static_cast<std::ptrdiff_t>(begin), bytes, turn);
    } else if (owner[begin] != 0 && (begin == 0 || owner[begin - 1] != owner[begin])) {
      const auto length = std::count(owner.begin(), owner.end(), owner[begin]);
      ASSERT_EQ(ranges.remove(memory.data() + begin), static_cast<uint64_t>(length));
      std::replace(owner.begin(), owner.end(), int{owner[begin]}, 0);
    }
    ASSERT_EQ(ranges.total(),
              memory.size() - static_cast<size_t>(std::count(owner.begin(), owner.end(), 0)));
  }
}

}  // namespace
}  // namespace klotski
