#include "text/utf8.h"

#include <gtest/gtest.h>

#include "text/unicode.h"

namespace klotski {
namespace {

std::string lossy(std::string_view bytes) {
  std::string out;
  append_lossy_utf8(out, bytes);
  return out;
}

TEST(Utf8, EveryCodePointGoesThereAndBack) {
  for (char32_t code = 0; code <= 0x10FFFF; ++code) {
    if (code >= 0xD800 && code <= 0xDFFF) continue;
    std::string text;
    append_utf8(text, code);
    const Utf8Char read = decode_utf8(text, 0);
    ASSERT_TRUE(read.valid);
    ASSERT_EQ(read.code, code);
    ASSERT_EQ(read.bytes, text.size());
    ASSERT_EQ(utf8_bytes(text[0]), text.size());
  }
}

TEST(Utf8, EachMaximalInvalidSequenceIsOneReplacement) {
  EXPECT_EQ(lossy("a\xFF"
                  "b"),
            "a\uFFFD"
            "b");
  EXPECT_EQ(lossy("\xC0\xAF"), "\uFFFD\uFFFD");                      // overlong
  EXPECT_EQ(lossy("\xED\xA0\x80"), "\uFFFD\uFFFD\uFFFD");            // surrogate
  EXPECT_EQ(lossy("\xF4\x90\x80\x80"), "\uFFFD\uFFFD\uFFFD\uFFFD");  // beyond U+10FFFF
  EXPECT_EQ(lossy("\xE2\x82"
                  "A"),
            "\uFFFD"
            "A");  // cut short
  EXPECT_EQ(lossy("\xF0\x9F\x98"), "\uFFFD");
  EXPECT_EQ(lossy(std::string_view("\0\u00E9", 3)), std::string("\0\u00E9", 3));
}

TEST(Utf8, UnfinishedTailIsWhatMoreBytesCouldComplete) {
  const std::string smile = "\U0001F600";
  for (size_t cut = 1; cut < smile.size(); ++cut) {
    EXPECT_EQ(unfinished_utf8_tail("a" + smile.substr(0, cut)), cut);
  }
  EXPECT_EQ(unfinished_utf8_tail(smile), 0u);
  EXPECT_EQ(unfinished_utf8_tail("\xFF"), 0u);
  EXPECT_EQ(unfinished_utf8_tail("\xC0"), 0u);
  EXPECT_EQ(unfinished_utf8_tail("\x80\x80"), 0u);
}

std::string normalized(NormalForm form, std::string text) {
  normalize_unicode(form, text);
  return text;
}

TEST(Unicode, NormalForms) {
  EXPECT_EQ(normalized(NormalForm::nfc, "xe\u0301y"), "x\u00E9y");
  EXPECT_EQ(normalized(NormalForm::nfd, "x\u00E9y"), "xe\u0301y");
  EXPECT_EQ(normalized(NormalForm::nfkc, "\uFB01\u00BD"), "fi1\u20442");
  EXPECT_EQ(normalized(NormalForm::nfkd, "\u1E9B\u0323"), "s\u0323\u0307");
  EXPECT_EQ(normalized(NormalForm::nfc, "\u1100\u1161\u11A8"), "\uAC01");
  EXPECT_EQ(normalized(NormalForm::nfc, "\uAC00\u11A8"), "\uAC01");
  EXPECT_EQ(normalized(NormalForm::nfc, "a\u0301\u0323"), "\u1EA1\u0301");  // marks are ordered
  EXPECT_EQ(normalized(NormalForm::nfc, "plain"), "plain");
}

TEST(Unicode, LongRunsOfMarksAreNotQuadratic) {
  std::string marks;
  for (int i = 0; i < 250'000; ++i) marks += i % 2 == 0 ? "\u0301" : "\u0323";
  const std::string ordered = normalized(NormalForm::nfd, marks);
  EXPECT_EQ(ordered.size(), marks.size());
  EXPECT_TRUE(ordered.starts_with("\u0323\u0323"));
  EXPECT_TRUE(ordered.ends_with("\u0301\u0301"));
}

TEST(Unicode, Properties) {
  EXPECT_TRUE(is_white_space(0x85));
  EXPECT_FALSE(is_white_space(0x180E));
  EXPECT_FALSE(is_white_space(0x200B));
  EXPECT_TRUE(is_numeric(0xBD));
  EXPECT_TRUE(is_numeric(0x2167));
  EXPECT_TRUE(is_punctuation('$'));
  EXPECT_FALSE(is_punctuation(0xA2));
  std::string lower;
  append_lowercase(lower, 0x130);
  EXPECT_EQ(lower, "i\u0307");
}

}  // namespace
}  // namespace klotski
