#include "experts/routing_path.h"

#include <gtest/gtest.h>

namespace klotski {
namespace {

RoutingPath path_of(int64_t experts, std::initializer_list<int64_t> used) {
  RoutingPath path(experts);
  for (const int64_t expert : used) path.add(expert);
  return path;
}

// Two layers of 40 experts: {0, 3 | 41, 79} and {3, 7 | 41, 63} differ in 0, 7, 63 and 79.
TEST(RoutingPath, DistanceCountsExpertsThatOneOfTwoUses) {
  RoutingPath a = path_of(80, {0, 3, 41, 79});
  const RoutingPath b = path_of(80, {3, 7, 41, 63});
  EXPECT_EQ(hamming_distance(a, b), 4);
  EXPECT_EQ(hamming_distance(b, a), 4);
  EXPECT_EQ(hamming_distance(a, a), 0);
  EXPECT_EQ(a.used(), 4);
  a.add(b);
  EXPECT_EQ(a, path_of(80, {0, 3, 7, 41, 63, 79}));
  EXPECT_EQ(a.used(), 6);
}

// Two layers, one of 4 experts and top 1, one of 5 experts and top 2: two experts of each. All use
// expert 0 most, which tells nothing. The means are (0.9, 0.3, 0.2, 0.2 | 0.5, 0.5, 0.5, 0.2, 0.3).
TEST(RoutingPath, PathsHaveTheExpertsThatARequestUsesMoreThanOthersDo) {
  const RoutingTraceShape shape{"two layers", {{LayerId(0), 4, 1}, {LayerId(2), 5, 2}}};
  const RequestShares a = {0.9f, 0.6f, 0.1f, 0.3f, 1.0f, 0.9f, 0.1f, 0.0f, 0.0f};
  const RequestShares b = {0.9f, 0.0f, 0.3f, 0.1f, 0.0f, 0.1f, 0.9f, 0.4f, 0.6f};
  const std::vector<RoutingPath> paths = distinctive_paths(std::vector{&a, &b}, shape);
  ASSERT_EQ(paths.size(), 2u);
  EXPECT_EQ(paths[0], path_of(9, {1, 3, 4, 5}));
  EXPECT_EQ(paths[1], path_of(9, {0, 2, 6, 8})) << "0 as 0.9 - 0.9 is more than 0.1 - 0.2";
}

TEST(RoutingPath, RequestsAlikeHaveOnePath) {
  const RoutingTraceShape shape{"one layer", {{LayerId(0), 6, 1}}};
  const RequestShares shares(6, 0.5f);
  const std::vector<RoutingPath> paths = distinctive_paths(std::vector{&shares, &shares}, shape);
  EXPECT_EQ(paths[0], path_of(6, {0, 1}));
  EXPECT_EQ(paths[1], paths[0]);
  EXPECT_TRUE(distinctive_paths({}, shape).empty());
}

}  // namespace
}  // namespace klotski
