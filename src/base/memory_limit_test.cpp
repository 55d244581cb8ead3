#include "base/memory_limit.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

namespace klotski {
namespace {

class MemoryLimit : public ::testing::Test {
 protected:
  MemoryLimit() : root_(::testing::TempDir() + "/limit" + std::to_string(::getpid())) {
    write("proc/meminfo", "MemTotal: 2000 kB\nMemAvailable: 1000 kB\n");
  }
  ~MemoryLimit() override { std::filesystem::remove_all(root_); }

  void write(const std::string& name, const std::string& text) {
    std::filesystem::create_directories((root_ / name).parent_path());
    std::ofstream(root_ / name) << text;
  }
  uint64_t available() { return memory_left(root_ / "proc", root_ / "cgroup").least(); }

  std::filesystem::path root_;
};

TEST_F(MemoryLimit, IsWhatTheMachineHasWithoutGroups) {
  EXPECT_EQ(available(), 1000u * 1024);
  write("proc/self/cgroup", "0::/job\n");
  write("cgroup/job/memory.max", "max\n");
  write("cgroup/job/memory.current", "500\n");
  EXPECT_EQ(available(), 1000u * 1024);
}

TEST_F(MemoryLimit, AGroupOfVersionOneWithoutALimitSetsNone) {
  write("proc/self/cgroup", "4:memory:/job\n");
  write("cgroup/memory/job/memory.limit_in_bytes", "9223372036854771712\n");
  write("cgroup/memory/job/memory.usage_in_bytes", "5000\n");
  const MemoryLeft left = memory_left(root_ / "proc", root_ / "cgroup");
  EXPECT_EQ(left.machine, 1000u * 1024);
  EXPECT_EQ(left.control_groups, std::nullopt);
  write("cgroup/memory/job/memory.limit_in_bytes", "6000\n");
  EXPECT_EQ(memory_left(root_ / "proc", root_ / "cgroup").control_groups, 1000u);
}

TEST_F(MemoryLimit, TheTightestLevelOfVersionTwoCounts) {
  write("proc/self/cgroup", "0::/outer/job\n");
  write("cgroup/outer/memory.max", "300000\n");
  write("cgroup/outer/memory.current", "100000\n");
  write("cgroup/outer/job/memory.max", "900000\n");
  write("cgroup/outer/job/memory.current", "100000\n");
  EXPECT_EQ(available(), 200000u);
  write("cgroup/outer/memory.stat", "anon 10\ninactive_file 50000\n");
  EXPECT_EQ(available(), 250000u) << "page cache that can be dropped is not use";
}

TEST_F(MemoryLimit, VersionOneHasItsOwnFolder) {
  write("proc/self/cgroup", "5:cpu,cpuacct:/x\n4:memory:/job\n");
  write("cgroup/memory/job/memory.limit_in_bytes", "400000\n");
  write("cgroup/memory/job/memory.usage_in_bytes", "150000\n");
  EXPECT_EQ(available(), 250000u);
}

TEST_F(MemoryLimit, AFullGroupLeavesNothing) {
  write("proc/self/cgroup", "0::/\n");
  write("cgroup/memory.max", "1000\n");
  write("cgroup/memory.current", "5000\n");
  EXPECT_EQ(available(), 0u);
}

}  // namespace
}  // namespace klotski
