#include "base/random_bits.h"

#include <gtest/gtest.h>

#include <set>

namespace klotski {
namespace {

TEST(RandomBits, EveryBitIsDrawnAndNoNumberTwice) {
  std::set<uint64_t> numbers;
  uint64_t ever_set = 0;
  uint64_t always_set = ~uint64_t{0};
  for (int i = 0; i < 200; ++i) {
    const uint64_t bits = random_bits();
    numbers.insert(bits);
    ever_set |= bits;
    always_set &= bits;
  }
  EXPECT_EQ(numbers.size(), 200u);
  EXPECT_EQ(ever_set, ~uint64_t{0});
  EXPECT_EQ(always_set, 0u);
}

}  // namespace
}  // namespace klotski
