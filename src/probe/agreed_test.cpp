#include "probe/agreed.h"

#include <gtest/gtest.h>

namespace klotski {
namespace {

// The result, from rates that are measured one after the other, and how many of them were.
struct Found {
  double rate;
  size_t measured;

  bool operator==(const Found&) const = default;
};

Found agreed(const std::vector<double>& rates) {
  size_t next = 0;
  const double rate = fastest_agreed([&] { return rates.at(next++); }, 3, 6);
  return {rate, next};
}

TEST(FastestAgreed, IsConfirmed) {
  EXPECT_EQ(agreed({20, 22, 21.5}), (Found{22, 3}));
  EXPECT_EQ(agreed({10, 22, 10, 21.5}), (Found{22, 4})) << "busy at first, and again";
  EXPECT_EQ(agreed({10, 10, 10, 22, 22, 22}), (Found{10, 3})) << "nothing tells of better times";
  EXPECT_EQ(agreed({22, 40, 22, 22, 22, 22}), (Found{22, 6})) << "one that nothing confirms";
}

TEST(FastestAgreed, WhereNoneAgreeItIsTheMedian) {
  EXPECT_EQ(agreed({10, 20, 30, 40, 50, 60}), (Found{30, 6}));
}

}  // namespace
}  // namespace klotski
