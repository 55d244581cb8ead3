#include "base/bytes.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace klotski {
namespace {

TEST(Bytes, ParsesEveryUnit) {
  EXPECT_EQ(parse_bytes("4096", "--ram"), 4096u);
  EXPECT_EQ(parse_bytes("24GiB", "--ram"), 24 * kGiB);
  EXPECT_EQ(parse_bytes("1.5GiB", "--ram"), 3 * kGiB / 2);
  EXPECT_EQ(parse_bytes("512MiB", "--ram"), 512 * kMiB);
  EXPECT_EQ(parse_bytes("8GB", "--ram"), 8'000'000'000u);
}

TEST(Bytes, RefusesWhatIsNotASize) {
  for (const char* bad : {"", "GiB", "-1GiB", "nan", "inf", "1e99GiB", "0x10", "5 GiB", "12Gib"}) {
    EXPECT_THROW(parse_bytes(bad, "--ram"), Error) << bad;
  }
}

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

}  // namespace
}  // namespace klotski
