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

TEST(Bytes, ReadsSizesAsUsersWriteThem) {
  EXPECT_EQ(parse_bytes("3GiB"), 3 * kGiB);
  EXPECT_EQ(parse_bytes("1.5 GB"), 1'500'000'000u);
  EXPECT_EQ(parse_bytes("512MiB"), 512 * kMiB);
  EXPECT_EQ(parse_bytes("4096"), 4096u);
  EXPECT_EQ(parse_bytes("0B"), 0u);
  for (const char* bad : {"", "GiB", "-1", "1e3", "0x10", "3 Gi", "3gib", "1..5GB", "9e99TiB",
                          "nan", "20000000TiB", "3  GiB", " 3GiB", "3GiB "}) {
    EXPECT_FALSE(parse_bytes(bad)) << bad;
  }
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
