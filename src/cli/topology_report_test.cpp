#include "cli/topology_report.h"

#include <gtest/gtest.h>

#include "base/bytes.h"

namespace klotski {
namespace {

Topology two_nodes() {
  return {.nodes = {{0, {0, 1}, 4 * kGiB}, {1, {2, 3}, 4 * kGiB}},
          .cpus = {0, 1, 2, 3},
          .memory_nodes = {0, 1},
          .displays = {}};
}

DisplayDevice device(std::optional<PcieLink> link) {
  return {"0000:41:00.0", 0x030200, 0x10DE, 0x2335, link};
}

TEST(TopologyReport, Text) {
  Topology topology = two_nodes();
  topology.nodes.push_back({2, {}, 8 * kGiB});
  topology.displays = {device(PcieLink{8, 16, 2.5, 32.0}),
                       device(PcieLink{16, 16, {}, 16.0}),
                       {"0000:00:02.0", 0x030000, 0x1234, 0x1111, {}}};
  EXPECT_EQ(topology_text(topology),
            "NUMA nodes    0: processors 0-1, 4.00 GiB of memory\n"
            "              1: processors 2-3, 4.00 GiB of memory\n"
            "              2: processors none, 8.00 GiB of memory\n"
            "displays      0000:41:00.0 NVIDIA 3D controller 2335, PCIe x8 of x16, 2.5 GT/s of 32 "
            "GT/s\n"
            "              0000:41:00.0 NVIDIA 3D controller 2335, PCIe x16 of x16, unknown speed "
            "of 16 GT/s\n"
            "              0000:00:02.0 vendor 1234 VGA controller 1111, no PCIe link\n");
  EXPECT_EQ(topology_text({}), "");
}

TEST(TopologyReport, Document) {
  Topology topology = two_nodes();
  topology.cpus = {3};
  topology.memory_nodes = {0};
  topology.displays = {device(PcieLink{8, 16, {}, 32.0}), device({})};
  const Json json = topology_json(topology);
  EXPECT_EQ(json["numa_nodes"][0], Json({{"id", 0},
                                         {"cpus", {0, 1}},
                                         {"memory_bytes", 4 * kGiB},
                                         {"may_run", false},
                                         {"may_take_memory", true}}));
  EXPECT_EQ(json["numa_nodes"][1]["may_run"], true);
  EXPECT_EQ(json["numa_nodes"][1]["may_take_memory"], false);
  EXPECT_EQ(json["display_devices"][0], Json({{"address", "0000:41:00.0"},
                                              {"class", "030200"},
                                              {"vendor", "10de"},
                                              {"device", "2335"},
                                              {"link",
                                               {{"width", 8},
                                                {"most_width", 16},
                                                {"transfers_per_second", nullptr},
                                                {"most_transfers_per_second", 32e9}}}}));
  EXPECT_TRUE(json["display_devices"][1]["link"].is_null());
}

TEST(TopologyReport, AdvisesOnNarrowLinksAlone) {
  Topology topology = two_nodes();
  topology.displays = {device(PcieLink{16, 16, 2.5, 32.0}), device({})};
  EXPECT_TRUE(topology_advice(topology).empty()) << "a slow link may be an idle one";
  topology.displays = {device(PcieLink{4, 16, 32.0, 32.0})};
  const std::vector<std::string> advice = topology_advice(topology);
  ASSERT_EQ(advice.size(), 1u);
  EXPECT_NE(advice[0].find("0000:41:00.0 (NVIDIA) has 4 of its 16 lanes"), std::string::npos);
  EXPECT_NE(advice[0].find("speed falls when idle"), std::string::npos);
}

TEST(TopologyReport, AdvisesWhereNodesMayNotBeUsed) {
  EXPECT_TRUE(topology_advice(two_nodes()).empty());
  Topology some = two_nodes();
  some.cpus = {0, 2};
  EXPECT_TRUE(topology_advice(some).empty()) << "both nodes compute";
  some.cpus = {2};
  ASSERT_EQ(topology_advice(some).size(), 1u);
  EXPECT_NE(topology_advice(some)[0].find("may run on node 1 alone"), std::string::npos);
  Topology bound = two_nodes();
  bound.memory_nodes = {1};
  ASSERT_EQ(topology_advice(bound).size(), 1u);
  EXPECT_NE(topology_advice(bound)[0].find("take that of 1 alone"), std::string::npos);
  bound.cpus = {2, 3};
  EXPECT_EQ(topology_advice(bound).size(), 2u);
}

TEST(TopologyReport, NothingKnownIsNothingToAdvise) {
  Topology unknown = two_nodes();
  unknown.cpus.clear();  // the system did not say
  unknown.memory_nodes.clear();
  EXPECT_TRUE(topology_advice(unknown).empty());
  Topology one{.nodes = {{0, {0, 1}, kGiB}}, .cpus = {0}, .memory_nodes = {0}, .displays = {}};
  EXPECT_TRUE(topology_advice(one).empty()) << "one node is all there is";
  one.nodes.push_back({1, {}, 0});  // neither processors nor memory
  EXPECT_TRUE(topology_advice(one).empty());
}

}  // namespace
}  // namespace klotski
