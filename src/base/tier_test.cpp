#include "base/tier.h"

#include <gtest/gtest.h>

namespace klotski {
namespace {

TEST(Tier, IsFoundByItsName) {
  EXPECT_EQ(tier_name(kComputeTier), "compute");
  EXPECT_EQ(tier_name({TierKind::host, 1}), "host 1");
  for (const TierKind kind :
       {TierKind::compute, TierKind::host, TierKind::remote, TierKind::disk}) {
    for (const int number : {0, 1, 9, 10, 255}) {
      const TierId tier{kind, static_cast<uint8_t>(number)};
      EXPECT_EQ(tier_named(tier_name(tier)), tier);
    }
  }
  for (const char* name : {"", "tape", "disk 0", "disk 256", "disk  1", "disk1", "host 1 "}) {
    EXPECT_FALSE(tier_named(name)) << name;
  }
}

}  // namespace
}  // namespace klotski
