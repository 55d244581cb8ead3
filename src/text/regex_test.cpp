#include "text/regex.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/testing.h"
#include "text/byte_level.h"

namespace klotski {
namespace {

std::vector<std::string> matches(std::string_view pattern, std::string_view text,
                                 RegexDialect dialect = RegexDialect::oniguruma) {
  const Regex regex(pattern, dialect, "test");
  RegexMatches found(regex, text);
  std::vector<std::string> result;
  Span span;
  while (found.next(&span)) result.emplace_back(text.substr(span.begin, span.end - span.begin));
  return result;
}

using Strings = std::vector<std::string>;

TEST(Regex, WordsOfGpt2) {
  EXPECT_EQ(matches(kGpt2Pattern, "I'll go  to\n\n 12"),
            (Strings{"I", "'ll", " go", " ", " to", "\n\n", " 12"}));
}

TEST(Regex, AnchorsAreLinesInOnigurumaOnly) {
  EXPECT_EQ(matches("^a|b$", "ab\nab"), (Strings{"a", "b", "a", "b"}));
  EXPECT_EQ(matches("^a|b$", "ab\nab", RegexDialect::rust), (Strings{"a", "b"}));
  EXPECT_EQ(matches("(?m:a.b)", "a\nb"), (Strings{"a\nb"}));
}

TEST(Regex, WhiteSpaceIsUnicodeWhiteSpace) {
  EXPECT_EQ(matches("\\s", "\u0085\u180E\u3000"), (Strings{"\u0085", "\u3000"}));
  EXPECT_EQ(matches("[\\s\\S]", "\u180E"), (Strings{"\u180E"}));
  EXPECT_EQ(matches("[^\\S\\n]+", " \n\t"), (Strings{" ", "\t"}));
}

TEST(Regex, ClassesNestAndIntersect) {
  EXPECT_EQ(matches("[a-z&&[^aeiou]]+", "hello"), (Strings{"h", "ll"}));
  EXPECT_EQ(matches("[\\p{L}&&[^\\p{Han}]]+", "ab\u6771c"), (Strings{"ab", "c"}));
  EXPECT_EQ(matches("[a[bc]]+", "abcd"), (Strings{"abc"}));
  EXPECT_EQ(matches("[^\\W\\d_]+", "a1_b"), (Strings{"a", "b"}));
  EXPECT_EQ(matches("[]a]+", "]a["), (Strings{"]a"}));
}

TEST(Regex, OnigurumaRepeats) {
  EXPECT_EQ(matches("a{,2}b", "aab"), (Strings{"aab"}));
  EXPECT_EQ(matches("\\d{1,2}+", "12345"), (Strings{"12345"}));
  EXPECT_EQ(matches("\\d{1,2}+", "12345", RegexDialect::rust), (Strings{"12", "34", "5"}));
  EXPECT_EQ(matches("\\h+", "xfaceg"), (Strings{"face"}));
}

TEST(Regex, CharactersNewerThanTheLibraryKeepTheirCategory) {
  EXPECT_EQ(matches("\\p{L}+", "a\U00031CD5b"), (Strings{"a\U00031CD5b"}));  // Unicode 15
  EXPECT_EQ(matches("\\p{N}+", "1\U00010D42"), (Strings{"1\U00010D42"}));    // Unicode 16
}

TEST(Regex, EmptyMatchesMoveOn) {
  EXPECT_EQ(matches("a*", "ba"), (Strings{"", "a"}));
  EXPECT_EQ(matches("x*", ""), (Strings{""}));
}

TEST(Regex, HostilePatternsEndInAnError) {
  for (const char* pattern :
       {"(", "[a", "a\\", "\\p{Nonsense}", "(*ACCEPT)", "a{99999}{99999}", "(?<=a*)b", "*"}) {
    EXPECT_THROW(Regex(pattern, RegexDialect::oniguruma, "test"), Error) << pattern;
  }
  EXPECT_THROW(Regex(std::string(200, '[') + "a", RegexDialect::oniguruma, "t"), Error);
  EXPECT_THROW(Regex(std::string(100'000, 'a'), RegexDialect::oniguruma, "t"), Error);
  const double start = processor_seconds();
  EXPECT_THROW(matches("(a+)+$", std::string(100, 'a') + "b"), Error);
  EXPECT_LT(processor_seconds() - start, 20);
}

TEST(Regex, LongRunsNeedNoStack) {
  for (const std::string unit : {"A", " ", ".", "\u6771", "\u0301"}) {
    std::string text;
    while (text.size() < 1'000'000) text += unit;
    size_t bytes = 0;
    for (const std::string& match : matches(kGpt2Pattern, text)) bytes += match.size();
    EXPECT_EQ(bytes, text.size());
  }
}

}  // namespace
}  // namespace klotski
