#include "probe/machine.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "kernels/testing.h"
#include "memory/testing.h"

namespace klotski {
namespace {

using testing::RandomFile;

ProbeLimits small() {
  ProbeLimits limits;
  limits.disk_bytes = 4 * kMiB;
  return limits;
}

TEST(MeasureMachine, MemoryAndDisk) {
  const RandomFile file(::testing::TempDir(), 6 * kMiB + 123, 1);
  Tier tier("test", 64 * kMiB);
  const MachineProfile machine = measure_machine(cpu_processor(), file.path(), kMiB, tier, small());
  EXPECT_EQ(machine.cpu().name, cpu_kernels().chosen);
  EXPECT_GE(machine.cpu().threads, 1);
  EXPECT_GT(machine.cpu().memory_bytes_per_second, 1e7);
  EXPECT_LT(machine.cpu().memory_bytes_per_second, 1e13);
  ASSERT_FALSE(machine.disk().rates.empty());
  EXPECT_GT(machine.disk().bytes_per_second, 0.0);
  for (const DiskRate& rate : machine.disk().rates) {
    EXPECT_GT(rate.bytes_per_second, 1e4);
    EXPECT_LE(rate.block_bytes * static_cast<uint64_t>(rate.queue_depth), 4 * kMiB);
  }
  EXPECT_EQ(machine.disk().rates.size(),
            6u);  // 256 KiB by 1, 4 and 8, 1 MiB by 1 and 4, 4 MiB by 1
  EXPECT_EQ(tier.used_bytes(), 0u);
}

TEST(MeasureMachine, StaysWithinItsMemory) {
  const RandomFile file(::testing::TempDir(), 20 * kMiB, 2);
  Tier tier("test", 8 * kMiB);
  ProbeLimits limits;
  const MachineProfile machine = measure_machine(cpu_processor(), file.path(), kMiB, tier, limits);
  EXPECT_FALSE(machine.disk().rates.empty());
  EXPECT_LE(tier.peak_bytes(), 8 * kMiB);
  EXPECT_GE(tier.peak_bytes(), 4 * kMiB);
}

TEST(MeasureMachine, FilesOfAnySize) {
  Tier tier("test", 64 * kMiB);
  for (const uint64_t size : {uint64_t{1}, uint64_t{4096}, uint64_t{4097}, 300 * kKiB}) {
    const RandomFile file(::testing::TempDir(), size, 3);
    EXPECT_EQ(
        measure_machine(cpu_processor(), file.path(), kMiB, tier, small()).disk().rates.size(), 1u)
        << size;
  }
  const RandomFile empty(::testing::TempDir(), 0, 4);
  EXPECT_TRUE(
      measure_machine(cpu_processor(), empty.path(), kMiB, tier, small()).disk().rates.empty());
  EXPECT_THROW(measure_machine(cpu_processor(), "/absent/file", kMiB, tier, small()), Error);
}

TEST(MeasureMachine, WithoutAFile) {
  Tier tier("test", 64 * kMiB);
  const MachineProfile machine = measure_machine(cpu_processor(), {}, kMiB, tier, small());
  EXPECT_GT(machine.cpu().memory_bytes_per_second, 1e7);
  EXPECT_TRUE(machine.disk().rates.empty());
  EXPECT_EQ(machine.disk().bytes_per_second, 0.0);
  EXPECT_EQ(machine.disk().bytes_per_second_while_computing, 0.0);
  EXPECT_EQ(machine.disk().bytes_per_second_into_new_memory, 0.0);
  EXPECT_EQ(machine.cpu().takes_while_reading, 1.0);
}

}  // namespace
}  // namespace klotski
