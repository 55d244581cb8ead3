#include "timeline/lane.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <type_traits>
#include <vector>

#include "timeline/lane_map.h"
#include "timeline/testing.h"

namespace klotski {
namespace {

using testing_timeline::kNamedLanes;

static_assert(std::is_trivially_copyable_v<Lane> && sizeof(Lane) <= 8);

TEST(Lane, NamesOfOneTierOfEachKind) {
  std::vector<std::string> names;
  for (const Lane lane : kNamedLanes) names.push_back(lane_name(lane));
  EXPECT_EQ(names, (std::vector<std::string>{"compute", "CPU", "to device", "rows down", "rows up",
                                             "disk read", "host copy", "KV in", "KV out"}));
  EXPECT_TRUE(std::is_sorted(kNamedLanes.begin(), kNamedLanes.end()));
}

TEST(Lane, MoreTiersHaveLanesOfOtherNames) {
  const TierId second{TierKind::compute, 1};
  const TierId node{TierKind::host, 1};
  const TierId remote{TierKind::remote, 0};
  EXPECT_EQ(lane_name(compute_lane(second)), "compute 1");
  EXPECT_EQ(lane_name(compute_lane(node)), "CPU 1");
  EXPECT_EQ(lane_name(weights_lane(kHostTier, second)), "to device 1");
  EXPECT_EQ(lane_name(weights_lane(remote, kHostTier)), "remote to host");
  EXPECT_EQ(lane_name(weights_lane({TierKind::disk, 1}, kHostTier)), "disk 1 read");
  EXPECT_EQ(lane_name(rows_lane(second, kHostTier)), "rows down 1");
  EXPECT_EQ(lane_name(rows_lane(kComputeTier, second)), "rows compute to compute 1");
  EXPECT_EQ(lane_name(kv_in_lane(second)), "KV in 1");
}

TEST(Lane, NoTwoHaveOneName) {
  std::vector<TierId> tiers;
  for (const TierKind kind :
       {TierKind::compute, TierKind::host, TierKind::remote, TierKind::disk}) {
    for (uint8_t number = 0; number < 3; ++number) tiers.push_back({kind, number});
  }
  std::set<Lane> lanes;
  for (const TierId a : tiers) {
    lanes.insert(compute_lane(a));
    if (a.kind == TierKind::compute) {
      lanes.insert({settle_lane(a), kv_in_lane(a), kv_out_lane(a)});
    }
    for (const TierId b : tiers) {
      if (a != b) lanes.insert({weights_lane(a, b), rows_lane(a, b)});
    }
  }
  std::set<std::string> names;
  for (const Lane lane : lanes) EXPECT_TRUE(names.insert(lane_name(lane)).second);
}

TEST(LaneMap, KeepsTheOrderOfLanesAndKnowsWhatWasAskedFor) {
  LaneMap<int> map;
  EXPECT_EQ(map.find(Lane::kCompute), nullptr);
  for (size_t i = kNamedLanes.size(); i-- > 0;) map.at(kNamedLanes[i], static_cast<int>(i));
  EXPECT_EQ(map.at(Lane::kCpu, 77), 1) << "it was there";
  EXPECT_EQ(map.size(), kNamedLanes.size());
  size_t i = 0;
  for (const auto& [lane, value] : map) {
    EXPECT_EQ(lane, kNamedLanes[i]);
    EXPECT_EQ(value, static_cast<int>(i++));
  }
  EXPECT_EQ(*map.find(Lane::kKvOut), 8);
}

}  // namespace
}  // namespace klotski
