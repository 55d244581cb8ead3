#include "base/process_memory.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/bytes.h"

namespace klotski {
namespace {

TEST(ProcessMemory, SeesWhatIsTouched) {
  const uint64_t before = resident_bytes();
  ASSERT_GT(before, 0u);
  {
    const std::vector<char> block(64 * kMiB, 1);
    EXPECT_GT(resident_bytes(), before + 48 * kMiB);
    EXPECT_EQ(block.back(), 1);
  }
  EXPECT_GT(peak_resident_bytes(), before + 48 * kMiB);
}

}  // namespace
}  // namespace klotski
