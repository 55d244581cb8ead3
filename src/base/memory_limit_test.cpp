#include "base/memory_limit.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>

#include "base/bytes.h"
#include "base/process_memory.h"

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

// Puts a limit of this process back.
class ScopedLimit {
 public:
  ScopedLimit(decltype(RLIMIT_AS) resource, uint64_t bytes) : resource_(resource) {
    ::getrlimit(resource_, &before_);
    rlimit limit = before_;
    limit.rlim_cur = bytes;
    ::setrlimit(resource_, &limit);
  }
  ~ScopedLimit() { ::setrlimit(resource_, &before_); }

 private:
  decltype(RLIMIT_AS) resource_;
  rlimit before_{};
};

TEST_F(MemoryLimit, LimitsOfTheProcessCountWhatTheyAreAbout) {
  constexpr uint64_t kFar = uint64_t{1} << 45;  // beyond the address space of a sanitizer
  write("proc/self/status", "VmSize:\t  3000 kB\nVmData:\t  2000 kB\n");
  {
    const ScopedLimit limit(RLIMIT_DATA, kFar);
    const MemoryLeft left = memory_left(root_ / "proc", root_ / "cgroup");
    EXPECT_EQ(left.data, kFar - 2000 * 1024);
    EXPECT_EQ(left.least(), 1000u * 1024) << "the machine has less";
  }
  const ScopedLimit limit(RLIMIT_AS, kFar);
  EXPECT_EQ(memory_left(root_ / "proc", root_ / "cgroup").address_space, kFar - 3000 * 1024);
}

TEST(AllowedMemory, IsWhatTheBoundLeavesAboveTheMemoryInUse) {
  allow_memory(resident_bytes() + 8 * kMiB);
  EXPECT_LE(allowed_memory_left(), 9 * kMiB);
  allow_memory(1);
  EXPECT_EQ(allowed_memory_left(), 0u);
  allow_memory(UINT64_MAX);
  EXPECT_GT(allowed_memory_left(), 9 * kMiB);
}

TEST(Shortage, NamesTheTightestBoundAndWhatIsMissing) {
  MemoryLeft left{
      .machine = 8 << 20, .control_groups = 5 << 20, .address_space = {}, .data = 3 << 20};
  EXPECT_EQ(describe_shortage(4 << 20, left),
            "the program needs at least 4.0 MiB more, the limit is 3.0 MiB more of data "
            "(ulimit -d): 1.0 MiB too little");
  left.data.reset();
  EXPECT_NE(describe_shortage(6 << 20, left).find("control group"), std::string::npos);
  EXPECT_EQ(describe_shortage(1 << 20, left),
            "the program needs more than the 5.0 MiB that are left by the control group's limit");
}

}  // namespace
}  // namespace klotski
