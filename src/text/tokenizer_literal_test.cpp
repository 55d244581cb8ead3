// Text from outside must never become a special token where the caller says that it is text.

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "text/tokenizer.h"

namespace klotski {
namespace {

using Ids = std::vector<TokenId>;
using Spans = std::vector<Span>;

constexpr TokenId kEnd = 9;

Tokenizer make(const std::string& normalizer, bool normalized, const std::string& content = "<e>") {
  const std::string model =
      R"({"type":"BPE","unk_token":"?","vocab":{"?":0,"a":1,"<":2,"e":3,">":4},"merges":[]})";
  return Tokenizer::from_json(
      R"({"model":)" + model +
          (normalizer.empty() ? "" : R"(,"normalizer":{"type":")" + normalizer + R"("})") +
          R"(,"added_tokens":[{"id":9,"special":true,"content":")" + content +
          R"(","normalized":)" + (normalized ? "true" : "false") + "}]}",
      "test.json");
}

std::ptrdiff_t ends(const Tokenizer& tokenizer, std::string_view text, const Spans& literal) {
  const Ids ids = tokenizer.encode(text, {.literal = literal});
  return std::count(ids.begin(), ids.end(), kEnd);
}

TEST(LiteralText, SpansMoveWithRepairedText) {
  const Tokenizer tokenizer = make("", false);
  EXPECT_EQ(ends(tokenizer, "\xFF\xFF\xFF\xFF<e>", {{4, 7}}), 0);
  EXPECT_EQ(ends(tokenizer, "\xFF\xFF\xFF\xFF<e>", {}), 1);
  EXPECT_EQ(ends(tokenizer, "<e>\xFF<e>", {{4, 7}}), 1);
  EXPECT_EQ(ends(tokenizer, "<e>\xFF<e>\xFF<e>", {{0, 3}, {8, 11}}), 1);
  EXPECT_EQ(ends(tokenizer, "\xE6\x9D<e>", {{1, 3}}), 0);  // begins inside an invalid sequence
  EXPECT_EQ(tokenizer.encode("<e>\xFF<e>", {.literal = Spans{{4, 7}}}), (Ids{9, 0, 2, 3, 4}));
  const Ids plain = tokenizer.encode("\xFF<e>", {.parse_special = false});
  EXPECT_EQ(plain, (Ids{0, 2, 3, 4}));
}

TEST(LiteralText, EveryFoundSpanKeepsItsTokenOut) {
  for (const bool normalized : {false, true}) {
    for (const std::string normalizer : {"", "Lowercase", "NFKC", "BertNormalizer"}) {
      const Tokenizer tokenizer = make(normalizer, normalized);
      for (const std::string text : {"<e>", "a<E>a", "a<e><E>", "\uFF1Ce\uFF1E", "<\u212Fe>",
                                     "<e\u0301>", "\xFF<e>", "\xFF\xFF<E>", "<e\xCC>", "a"}) {
        EXPECT_EQ(ends(tokenizer, text, tokenizer.find_special(text)), 0)
            << text << normalizer << normalized;
      }
    }
  }
}

TEST(LiteralText, TokensSpelledOtherwiseAreFound) {
  const Tokenizer tokenizer = make("Lowercase", true);
  EXPECT_EQ(ends(tokenizer, "a<E>", {}), 1);
  EXPECT_EQ(tokenizer.find_special("a<E>"), (Spans{{0, 4}}));
  EXPECT_EQ(tokenizer.find_special("a<f>"), Spans{});
  EXPECT_EQ(make("NFKC", true).find_special("a\uFF1Ce\uFF1E"), (Spans{{0, 8}}));
}

TEST(LiteralText, PlacesAreExactWithoutNormalizing) {
  EXPECT_EQ(make("", false).find_special("a<e>a<e>"), (Spans{{1, 4}, {5, 8}}));
  EXPECT_EQ(make("", true).find_special("a<e>a<e>"), (Spans{{1, 4}, {5, 8}}));
  EXPECT_EQ(make("Lowercase", false).find_special("a<e>a<E>"), (Spans{{1, 4}}));
  EXPECT_EQ(make("", false).find_special("\xFF<e>"), (Spans{{0, 4}}));
  EXPECT_EQ(make("", false).find_special("\xFF"), Spans{});
}

}  // namespace
}  // namespace klotski
