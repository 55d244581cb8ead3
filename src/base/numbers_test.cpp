#include "base/numbers.h"

#include <gtest/gtest.h>

namespace klotski {
namespace {

TEST(Numbers, WholeStringOrNothing) {
  EXPECT_EQ(parse_int("-12"), -12);
  EXPECT_EQ(parse_uint("18446744073709551615"), UINT64_MAX);
  EXPECT_EQ(parse_double("1e-3"), 1e-3);
  for (const char* bad : {"", " 1", "1 ", "0x10", "+1", "1,5", "9223372036854775808"}) {
    EXPECT_FALSE(parse_int(bad)) << bad;
  }
  for (const char* bad : {"", "nan", "inf", "1e999", "0x1p3", "1.0f"}) {
    EXPECT_FALSE(parse_double(bad)) << bad;
  }
  EXPECT_FALSE(parse_uint("-1"));
}

}  // namespace
}  // namespace klotski
