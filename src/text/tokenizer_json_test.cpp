#include <gtest/gtest.h>

#include "base/json.h"
#include "text/tokenizer.h"
#include "text/tokenizer_parts.h"

namespace klotski {
namespace {

using Ids = std::vector<TokenId>;
using Strings = std::vector<std::string>;

Strings pieces(const std::string& pretokenizer, const std::string& text) {
  const Json json = parse_json(pretokenizer, "test");
  const PreTokenizerChain chain = parse_pretokenizer(JsonFields(json, "test"), "test");
  Pieces list;
  list.text = text;
  list.spans = {{0, text.size()}};
  list.at_input_start = true;
  for (const auto& step : chain.steps) step->apply(list);
  Strings result;
  for (const Span& span : list.spans) {
    result.push_back(list.text.substr(span.begin, span.end - span.begin));
  }
  return result;
}

std::string normalized(const std::string& normalizer, std::string text) {
  const Json json = parse_json(normalizer, "test");
  parse_normalizer(JsonFields(json, "test"), "test")->apply(text);
  return text;
}

std::string split(std::string_view behavior, bool invert = false) {
  return fmt::format(R"({{"type":"Split","pattern":{{"String":"-"}},"behavior":"{}","invert":{}}})",
                     behavior, invert);
}

TEST(PreTokenizer, SplitBehaviours) {
  EXPECT_EQ(pieces(split("Removed"), "a-b--c"), (Strings{"a", "b", "c"}));
  EXPECT_EQ(pieces(split("Isolated"), "a-b--c"), (Strings{"a", "-", "b", "-", "-", "c"}));
  EXPECT_EQ(pieces(split("MergedWithPrevious"), "a-b--c"), (Strings{"a-", "b-", "-", "c"}));
  EXPECT_EQ(pieces(split("MergedWithNext"), "a-b--c"), (Strings{"a", "-b", "-", "-c"}));
  EXPECT_EQ(pieces(split("Contiguous"), "a-b--c"), (Strings{"a", "-", "b", "--", "c"}));
  EXPECT_EQ(pieces(split("Removed", true), "a-b--c"), (Strings{"-", "-", "-"}));
}

TEST(PreTokenizer, Metaspace) {
  const auto metaspace = [](const std::string& rest) {
    return R"({"type":"Metaspace","replacement":"_",)" + rest + "}";
  };
  EXPECT_EQ(pieces(metaspace(R"("prepend_scheme":"always")"), "a  b"), (Strings{"_a", "_", "_b"}));
  EXPECT_EQ(pieces(metaspace(R"("prepend_scheme":"never")"), "a b"), (Strings{"a", "_b"}));
  EXPECT_EQ(pieces(metaspace(R"("prepend_scheme":"first","split":false)"), "a b"),
            (Strings{"_a_b"}));
  EXPECT_EQ(pieces(metaspace(R"("add_prefix_space":false)"), " a"), (Strings{"_a"}));
  EXPECT_THROW(pieces(metaspace(R"("add_prefix_space":false,"prepend_scheme":"first")"), "a"),
               Error);
}

TEST(PreTokenizer, ByCharacter) {
  EXPECT_EQ(pieces(R"({"type":"Digits","individual_digits":false})", "a12b"),
            (Strings{"a", "12", "b"}));
  EXPECT_EQ(pieces(R"({"type":"Digits","individual_digits":true})", "a12"),
            (Strings{"a", "1", "2"}));
  EXPECT_EQ(pieces(R"({"type":"Punctuation"})", "a,b"), (Strings{"a", ",", "b"}));
  EXPECT_EQ(pieces(R"({"type":"Whitespace"})", "it's 5"), (Strings{"it", "'", "s", "5"}));
  EXPECT_EQ(pieces(R"({"type":"BertPreTokenizer"})", "a b."), (Strings{"a", "b", "."}));
  EXPECT_EQ(pieces(R"({"type":"CharDelimiterSplit","delimiter":"x"})", "axb"), (Strings{"a", "b"}));
  EXPECT_THROW(pieces(R"({"type":"Mystery"})", "a"), Error);
}

TEST(Normalizer, Kinds) {
  EXPECT_EQ(normalized(R"({"type":"Prepend","prepend":"_"})", "a"), "_a");
  EXPECT_EQ(normalized(R"({"type":"Prepend","prepend":"_"})", ""), "");
  EXPECT_EQ(normalized(R"({"type":"Replace","pattern":{"Regex":" +"},"content":"$1"})", "a  b"),
            "a$1b");
  EXPECT_EQ(normalized(R"({"type":"Strip","strip_left":true,"strip_right":false})", " a "), "a ");
  EXPECT_EQ(normalized(R"({"type":"StripAccents"})", "e\u0301"), "e");
  EXPECT_EQ(normalized(R"({"type":"BertNormalizer"})", "\u00C9\t\u6771\u0001"), "e  \u6771 ");
  EXPECT_EQ(normalized(R"({"type":"ByteLevel"})", " \u00E9"), "\u0120\u00C3\u00A9");
  EXPECT_EQ(normalized(R"({"type":"Nmt"})", "a\u200Bb\u0007"), "a b");
  EXPECT_THROW(normalized(R"({"type":"Mystery"})", "a"), Error);
}

Tokenizer make(const std::string& model, const std::string& rest = "") {
  return Tokenizer::from_json(
      fmt::format(R"({{"model":{}{}{}}})", model, rest.empty() ? "" : ",", rest), "test.json");
}

const std::string kBpe =
    R"({"type":"BPE","vocab":{"<unk>":0,"a":1,"b":2,"c":3,"ab":4,"bc":5,"abc":6,"<0xC3>":7,)"
    R"("<0xA9>":8},"merges":["b c","a b",["a","bc"]],"unk_token":"<unk>")";

TEST(Bpe, LowestRankFirstThenLeftmost) {
  const Tokenizer tokenizer = make(kBpe + "}");
  EXPECT_EQ(tokenizer.encode("abc", {}), (Ids{6}));  // b c, then a bc
  EXPECT_EQ(tokenizer.encode("ab", {}), (Ids{4}));
  EXPECT_EQ(tokenizer.encode("bcbc", {}), (Ids{5, 5}));
}

TEST(Bpe, UnknownCharacters) {
  EXPECT_EQ(make(kBpe + "}").encode("axyb", {}), (Ids{1, 0, 0, 2}));
  EXPECT_EQ(make(kBpe + R"(,"fuse_unk":true})").encode("axyb", {}), (Ids{1, 0, 2}));
  EXPECT_EQ(make(kBpe + R"(,"byte_fallback":true})").encode("\u00E9x", {}), (Ids{7, 8, 0}));
}

TEST(Bpe, PrefixAndSuffix) {
  const Tokenizer tokenizer =
      make(R"({"type":"BPE","vocab":{"a":0,"##b":1,"ab":2,"##c</w>":3,"abc</w>":4},)"
           R"("merges":["a ##b","ab ##c</w>"],"continuing_subword_prefix":"##",)"
           R"("end_of_word_suffix":"</w>"})");
  EXPECT_EQ(tokenizer.encode("abc", {}), (Ids{4}));
}

TEST(Unigram, BestPathAndUnknownRuns) {
  const Tokenizer tokenizer =
      make(R"({"type":"Unigram","unk_id":0,"vocab":[["<unk>",0],["a",-1],["b",-1],["ab",-1.5]]})");
  EXPECT_EQ(tokenizer.encode("abxyb", {}), (Ids{3, 0, 2}));
}

TEST(WordPiece, LongestFirstOrUnknown) {
  const Tokenizer tokenizer =
      make(R"({"type":"WordPiece","unk_token":"?","vocab":{"?":0,"un":1,"##able":2,"##a":3}})");
  EXPECT_EQ(tokenizer.encode("unable", {}), (Ids{1, 2}));
  EXPECT_EQ(tokenizer.encode("unax", {}), (Ids{0}));
  EXPECT_EQ(tokenizer.encode(std::string(101, 'u'), {}), (Ids{0}));
}

TEST(AddedTokens, LongestFirstAndStripping) {
  const Tokenizer tokenizer =
      make(kBpe + "}", R"("added_tokens":[{"id":10,"content":"<x>","special":true},)"
                       R"({"id":11,"content":"<x>y","special":true},)"
                       R"({"id":12,"content":"ca","single_word":true},)"
                       R"({"id":13,"content":"<l>","lstrip":true,"rstrip":true,"special":true}])");
  EXPECT_EQ(tokenizer.encode("a<x>y<x>", {}), (Ids{1, 11, 10}));
  EXPECT_EQ(tokenizer.encode("ca cab", {}), (Ids{12, 0, 3, 4}));
  EXPECT_EQ(tokenizer.encode("a <l> b", {}), (Ids{1, 13, 2}));
  EXPECT_EQ(tokenizer.encode("<x>", {.parse_special = false}), (Ids{0, 0, 0}));
  EXPECT_EQ(tokenizer.decode(Ids{1, 10, 2}, true), "a b");
  EXPECT_TRUE(tokenizer.is_special(10));
  EXPECT_FALSE(tokenizer.is_special(12));
  EXPECT_EQ(tokenizer.vocabulary_size(), 14u);
  EXPECT_EQ(tokenizer.id_of("<l>"), 13);
  EXPECT_EQ(tokenizer.id_of("nothing"), std::nullopt);
}

TEST(PostProcessor, TokensAround) {
  const Tokenizer tokenizer =
      make(kBpe + "}",
           R"("post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"s"}},)"
           R"({"Sequence":{"id":"A"}},{"SpecialToken":{"id":"e"}}],)"
           R"("special_tokens":{"s":{"ids":[3]},"e":{"ids":[2,2]}}})");
  EXPECT_EQ(tokenizer.encode("a", {.add_special = true}), (Ids{3, 1, 2, 2}));
  EXPECT_EQ(tokenizer.encode("", {.add_special = true}), (Ids{3, 2, 2}));
  EXPECT_EQ(tokenizer.encode("a", {}), (Ids{1}));
}

}  // namespace
}  // namespace klotski
