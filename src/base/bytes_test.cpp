#include "base/bytes.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace klotski {
namespace {

TEST(Bytes, FormatsWithAUnit) {
  EXPECT_EQ(format_bytes(17), "17 B");
  EXPECT_EQ(format_bytes(1536), "1.5 KiB");
  EXPECT_EQ(format_bytes(3 * kGiB), "3.00 GiB");
}

TEST(Bytes, CheckedArithmeticSeesOverflow) {
  uint64_t result = 0;
  EXPECT_TRUE(multiply_checked(1u << 31, 1u << 31, &result));
  EXPECT_FALSE(multiply_checked(uint64_t{1} << 33, uint64_t{1} << 31, &result));
  EXPECT_FALSE(add_checked(UINT64_MAX, 1, &result));
}

TEST(InQuotes, KeepsMessagesOnOneSafeLine) {
  EXPECT_EQ(in_quotes("a'b\n\x01"), "'a\\'b\\n\\x01'");
  EXPECT_EQ(in_quotes("gr\xC3\xBC\xC3"), "'gr\xC3\xBC\\xc3'");
  EXPECT_EQ(in_quotes("abcdef", 3), "'abc...'");
}

TEST(OneLine, EscapesOnlyWhatWouldBreakTheLine) {
  EXPECT_EQ(one_line("found 'a' and \\"), "found 'a' and \\");
  EXPECT_EQ(one_line("two\nlines \x1b[31m\xff"), "two\\nlines \\x1b[31m\\xff");
  EXPECT_EQ(one_line("\xC2\x9B"
                     "31m \xC2\xA9"),
            "\\x9b31m \xC2\xA9");
  EXPECT_EQ(one_line("abcdef", 3), "abc...");
}

}  // namespace
}  // namespace klotski
