#include "base/cpu_limit.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <string>

namespace klotski {
namespace {

class CpuLimit : public ::testing::Test {
 protected:
  CpuLimit() : root_(::testing::TempDir() + "/cpus" + std::to_string(::getpid())) {}
  ~CpuLimit() override { std::filesystem::remove_all(root_); }

  void write(const std::string& name, const std::string& text) {
    std::filesystem::create_directories((root_ / name).parent_path());
    std::ofstream(root_ / name) << text;
  }
  int usable(int allowed) { return usable_cpus(allowed, root_ / "proc", root_ / "cgroup"); }

  std::filesystem::path root_;
};

TEST_F(CpuLimit, IsWhatTheAffinityAllowsWithoutAQuota) {
  EXPECT_EQ(usable(6), 6);
  EXPECT_EQ(usable(0), 1) << "at least one";
  write("proc/self/cgroup", "0::/job\n");
  write("cgroup/job/cpu.max", "max 100000\n");
  EXPECT_EQ(usable(6), 6);
}

TEST_F(CpuLimit, TheTightestLevelOfVersionTwoCounts) {
  write("proc/self/cgroup", "0::/outer/job\n");
  write("cgroup/outer/cpu.max", "350000 100000\n");
  write("cgroup/outer/job/cpu.max", "800000 100000\n");
  EXPECT_EQ(usable(6), 3) << "fractions are dropped";
  EXPECT_EQ(usable(2), 2);
  write("cgroup/outer/job/cpu.max", "50000 100000\n");
  EXPECT_EQ(usable(6), 1) << "less than one processor is still one thread";
}

TEST_F(CpuLimit, VersionOneHasItsOwnFolder) {
  write("proc/self/cgroup", "4:memory:/x\n5:cpu,cpuacct:/job\n");
  write("cgroup/cpu/job/cpu.cfs_quota_us", "400000\n");
  write("cgroup/cpu/job/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(usable(6), 4);
  write("cgroup/cpu/job/cpu.cfs_quota_us", "-1\n");
  EXPECT_EQ(usable(6), 6);
}

TEST_F(CpuLimit, NonsenseIsNoLimit) {
  write("proc/self/cgroup", "0::/job\nbroken\n");
  write("cgroup/job/cpu.max", "100000 0\n");
  EXPECT_EQ(usable(6), 6);
}

TEST(AllowedCpus, ThisProcessHasSome) {
  EXPECT_GE(allowed_cpus().size(), 1u);
  EXPECT_GE(usable_cpus(), 1);
}

}  // namespace
}  // namespace klotski
