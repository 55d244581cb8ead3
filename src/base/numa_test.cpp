#include "base/numa.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>

#include "base/bytes.h"

namespace klotski {
namespace {

class Numa : public ::testing::Test {
 protected:
  Numa() : root_(::testing::TempDir() + "/numa" + std::to_string(::getpid())) {}
  ~Numa() override { std::filesystem::remove_all(root_); }

  void write(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories((root_ / name).parent_path());
    std::ofstream(root_ / name) << text;
  }
  void node(const std::string& name, const std::string& cpus, const std::string& meminfo) const {
    write("devices/system/node/" + name + "/cpulist", cpus);
    write("devices/system/node/" + name + "/meminfo", meminfo);
  }

  std::filesystem::path root_;
};

TEST_F(Numa, NodesWithTheirProcessorsAndMemory) {
  node("node10", "\n", "Node 10 MemTotal:   4 kB\nNode 10 MemFree: 1 kB\n");  // memory alone
  node("node1", "2-3\n", "\nNode 1 MemTotal:       24643328 kB\n");
  node("node0", "0-1\n", "Node 0 MemFree: 7 kB\nNode 0 MemTotal: 0 kB\n");  // processors alone
  write("devices/system/node/has_cpu", "0-1\n");
  EXPECT_EQ(numa_nodes(root_),
            (std::vector<NumaNode>{{0, {0, 1}, 0}, {1, {2, 3}, 24643328 * kKiB}, {10, {}, 4096}}));
}

TEST_F(Numa, OddNodesAreSkipped) {
  for (const char* name : {"node", "nodeX", "node-1", "node1024", "node01", "nod0", "node 1",
                           "node18446744073709551616"}) {
    node(name, "0\n", "Node 0 MemTotal: 1 kB\n");
  }
  node("node2", "0-\n", "Node 2 MemTotal: 1 kB\n");
  EXPECT_TRUE(numa_nodes(root_).empty());
}

TEST_F(Numa, OddMemoryCountsAsNone) {
  for (const char* meminfo :
       {"", "Node 0 MemTotal: many kB\n", "Node 0 MemTotal: -1 kB\n", "Node 0 MemTotal: 5 MB\n",
        "Node 0 MemTotal: 5\n", "MemTotal: 5 kB\n", "Node 0 MemTotal: 18446744073709551615 kB\n"}) {
    node("node0", "0\n", meminfo);
    EXPECT_EQ(numa_nodes(root_), (std::vector<NumaNode>{{0, {0}, 0}})) << meminfo;
  }
}

TEST_F(Numa, NoFolderIsNoNodes) {
  EXPECT_TRUE(numa_nodes(root_).empty());
  EXPECT_TRUE(memory_nodes(root_).empty());
}

TEST_F(Numa, MemoryNodesOfTheCpuset) {
  write("self/status", "Name:\tx\nMems_allowed:\t00000000,00000005\nMems_allowed_list:\t0,2\n");
  EXPECT_EQ(memory_nodes(root_), (std::vector<int>{0, 2}));
  for (const char* list : {"", "all", "2,0", "0-"}) {
    write("self/status", std::string("Mems_allowed_list:\t") + list + "\nother: 1\n");
    EXPECT_TRUE(memory_nodes(root_).empty()) << list;
  }
}

TEST(NumaHere, MemoryNodesAreAmongTheNodes) {
  const std::vector<NumaNode> nodes = numa_nodes();
  if (nodes.empty()) GTEST_SKIP() << "no nodes in /sys";
  for (const int id : memory_nodes()) {
    EXPECT_TRUE(std::any_of(nodes.begin(), nodes.end(), [id](const NumaNode& node) {
      return node.id == id;
    })) << id;
  }
}

}  // namespace
}  // namespace klotski
