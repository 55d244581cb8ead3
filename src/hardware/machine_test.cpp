#include "hardware/machine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace klotski {
namespace {

std::vector<std::string> lane_names(const Machine& machine) {
  std::vector<std::string> names;
  for (const Lane lane : machine.lanes()) names.push_back(lane_name(lane));
  return names;
}

TEST(Machine, LanesOfTodaysMachines) {
  EXPECT_EQ(lane_names(cpu_over_disk()),
            (std::vector<std::string>{"compute", "disk read", "host copy", "KV in", "KV out"}));
  EXPECT_EQ(lane_names(device_over_host()),
            (std::vector<std::string>{"compute", "CPU", "to device", "rows down", "rows up",
                                      "disk read", "KV in", "KV out"}));
}

TEST(Machine, ASecondDeviceAndARemoteMemoryAreEntries) {
  Machine machine = device_over_host();
  const std::vector<Lane> before = machine.lanes();
  const TierId second{TierKind::compute, 1};
  const TierId remote{TierKind::remote, 0};
  machine.tiers.insert(machine.tiers.end(), {second, remote});
  machine.links.insert(machine.links.end(),
                       {{kHostTier, second}, {kComputeTier, second}, {remote, kHostTier}});
  machine.processors.push_back(second);
  const std::vector<Lane> lanes = machine.lanes();
  EXPECT_TRUE(std::is_sorted(lanes.begin(), lanes.end()));
  EXPECT_TRUE(std::includes(lanes.begin(), lanes.end(), before.begin(), before.end()));
  for (const Lane lane :
       {compute_lane(second), copy_lane(kHostTier, second), rows_lane(kComputeTier, second),
        rows_lane(second, kComputeTier), kv_in_lane(second), copy_lane(remote, kHostTier)}) {
    EXPECT_TRUE(std::binary_search(lanes.begin(), lanes.end(), lane)) << lane_name(lane);
  }
  EXPECT_FALSE(std::binary_search(lanes.begin(), lanes.end(), rows_lane(kHostTier, remote)))
      << "nothing computes there";
}

}  // namespace
}  // namespace klotski
