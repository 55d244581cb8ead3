// Bad tokenizer files end in an Error, and hard text in time and tokens that are linear in it.

#include <gtest/gtest.h>

#include <bit>
#include <filesystem>
#include <functional>
#include <random>

#include "base/error.h"
#include "base/testing.h"
#include "text/gzip.h"
#include "text/tokenizer.h"
#include "text/tokenizer_parts.h"
#include "text/utf8.h"

namespace klotski {
namespace {

using Ids = std::vector<TokenId>;

const std::string kData = KLOTSKI_TEST_DATA;

std::string message_of(const std::string& json) {
  try {
    Tokenizer::from_json(json, "test.json");
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::bad_model);
    EXPECT_EQ(std::string_view(error.what()).find('\n'), std::string_view::npos);
    return error.what();
  }
  return "accepted";
}

std::string bpe(const std::string& vocabulary, const std::string& merges) {
  return R"({"model":{"type":"BPE","vocab":)" + vocabulary + R"(,"merges":)" + merges + "}}";
}

TEST(HostileTokenizer, BadModelsAreRefusedByName) {
  EXPECT_NE(message_of(bpe(R"({"a":0})", R"(["a b"])")).find("merges[0]"), std::string::npos);
  EXPECT_NE(message_of(bpe(R"({"a":0,"b":1})", R"(["a b"])")).find("'ab'"), std::string::npos);
  EXPECT_NE(message_of(bpe(R"({"a":0,"b":0})", "[]")).find("id 0"), std::string::npos);
  EXPECT_NE(message_of(bpe(R"({"a":2147483648})", "[]")).find("2147483648"), std::string::npos);
  EXPECT_NE(message_of(bpe(R"({"a":-1})", "[]")).find("-1"), std::string::npos);
  EXPECT_NE(message_of(bpe(R"({"a":1.5})", "[]")).find("integer"), std::string::npos);
  EXPECT_NE(message_of(bpe("{}", "[]")).find("vocab"), std::string::npos);
  EXPECT_NE(message_of(bpe(R"({"a":0})", R"(["a"])")).find("two tokens"), std::string::npos);
  EXPECT_NE(message_of(R"({"model":{"type":"Mystery","vocab":{}}})").find("Mystery"),
            std::string::npos);
  EXPECT_NE(message_of("{}").find("model"), std::string::npos);
  EXPECT_NE(message_of("[]"), "accepted");
  EXPECT_NE(message_of(""), "accepted");
}

TEST(HostileTokenizer, VocabulariesOfAllKindsAreChecked) {
  const auto model = [](const std::string& type, const std::string& vocabulary) {
    return message_of(R"({"model":{"type":")" + type + R"(","unk_token":"?","vocab":)" +
                      vocabulary + "}}");
  };
  for (const std::string type : {"WordPiece", "WordLevel"}) {
    EXPECT_NE(model(type, "{}").find("vocab"), std::string::npos);
    EXPECT_NE(model(type, R"({"?":0,"a":0})").find("id 0"), std::string::npos);
    EXPECT_NE(model(type, R"({"?":0,"a":2147483648})").find("2147483648"), std::string::npos);
    EXPECT_NE(model(type, R"({"?":0,"a":18446744073709551615})"), "accepted");
    EXPECT_EQ(model(type, R"({"?":0,"a":700})"), "accepted");  // real vocabularies have gaps
  }
  EXPECT_NE(model("Unigram", "[]").find("vocab"), std::string::npos);
  EXPECT_NE(model("Unigram", R"([["a",0],["a",1]])").find("twice"), std::string::npos);
  EXPECT_EQ(message_of(bpe(R"({"a":0,"b":9})", "[]")), "accepted");
  EXPECT_NE(message_of(bpe(R"({"a":0})", R"([["a","absent"]])")).find("'absent'"),
            std::string::npos);
}

std::string with(const std::string& rest) {
  return R"({"model":{"type":"BPE","vocab":{"a":0,"b":1},"merges":[]},)" + rest + "}";
}

TEST(HostileTokenizer, BadComponentsAreRefused) {
  for (const char* rest :
       {R"("added_tokens":[{"id":5,"content":""}])", R"("added_tokens":[{"id":1,"content":"x"}])",
        R"("added_tokens":[{"id":16777216,"content":"x"}])", R"("added_tokens":{})",
        R"("added_tokens":[{"id":5,"content":"x"},{"id":5,"content":"y"}])",
        R"("normalizer":{"type":"Precompiled","precompiled_charsmap":"!!!!"})",
        R"("normalizer":{"type":"Precompiled","precompiled_charsmap":"////fw=="})",
        R"("normalizer":{"type":"Mystery"})", R"("decoder":{"type":"Mystery"})",
        R"("post_processor":{"type":"Mystery"})", R"("pre_tokenizer":{"type":"Mystery"})",
        R"("pre_tokenizer":{"type":"Split","pattern":{"Regex":"("},"behavior":"Isolated"})",
        R"("pre_tokenizer":{"type":"Split","pattern":{"String":""},"behavior":"Isolated"})",
        R"("pre_tokenizer":{"type":"Split","pattern":{"String":"a"},"behavior":"Odd"})",
        R"("post_processor":{"type":"TemplateProcessing","single":[],"special_tokens":{}})"}) {
    EXPECT_NE(message_of(with(rest)), "accepted") << rest;
  }
}

TEST(HostileTokenizer, CatastrophicPatternEndsByLimit) {
  const Tokenizer tokenizer = Tokenizer::from_json(
      with(
          R"("pre_tokenizer":{"type":"Split","pattern":{"Regex":"(a+)+$"},"behavior":"Isolated"})"),
      "test.json");
  try {
    tokenizer.encode(std::string(64, 'a') + "b", {});
    FAIL() << "expected an error";
  } catch (const Error& error) {
    EXPECT_NE(std::string_view(error.what()).find("(a+)+$"), std::string_view::npos);
  }
}

TEST(HostileTokenizer, LongTextIsLinear) {
  for (const std::string name : {"mixtral-8x7b", "gpt2", "t5-switch"}) {
    const Tokenizer tokenizer = Tokenizer::load(kData + "/tokenizers/" + name);
    for (const std::string unit : {"A", " ", ".", "\u6771", "\u0301\u0323", "ab"}) {
      const auto encode = [&](int64_t bytes) {
        std::string text;
        while (std::ssize(text) < bytes) text += unit;
        // T5 drops white space.
        EXPECT_EQ(tokenizer.encode(text, {}).empty(), unit == " " && name == "t5-switch") << name;
      };
      EXPECT_TRUE(takes_linear_time(encode, 62'500)) << name << ", " << unit;
    }
  }
}

TEST(HostileTokenizer, LongWordIsLinear) {
  const Tokenizer tokenizer = Tokenizer::load(kData + "/tokenizers/mixtral-8x7b");
  const auto there_and_back = [&](int64_t letters) {
    std::string word;
    std::mt19937 random(7);
    while (std::ssize(word) < letters) word.push_back(static_cast<char>('a' + random() % 26));
    EXPECT_EQ(tokenizer.decode(tokenizer.encode(word, {})), word);
  };
  EXPECT_TRUE(takes_linear_time(there_and_back, 250'000));
}

TEST(HostileTokenizer, InvalidTextReadsAsReplacementCharacters) {
  const Tokenizer tokenizer = Tokenizer::load(kData + "/tokenizers/gpt2");
  const std::string bad = std::string("a\xED\xA0\x80 \xC0\xAF\0b\xF4\x8F\xBF\xBF", 13);
  std::string repaired;
  append_lossy_utf8(repaired, bad);
  EXPECT_EQ(tokenizer.encode(bad, {}), tokenizer.encode(repaired, {}));
  EXPECT_EQ(tokenizer.decode(tokenizer.encode(bad, {})), repaired);
}

TEST(HostileTokenizer, SafeCutsChangeNothing) {
  // Whole words first forbids cuts, and here never applies: both must agree on every text.
  const std::string vocabulary = R"({"_":0,"a":1,"b":2,"c":3,"ab":4,"_a":5,"bc":6,"_ab":7,"aa":8})";
  const std::string merges = R"(["a b","_ a","b c","_ ab","a a"])";
  const std::string model = R"({"type":"BPE","vocab":)" + vocabulary + R"(,"merges":)" + merges;
  const Tokenizer cut = Tokenizer::from_json(R"({"model":)" + model + "}}", "test");
  const Tokenizer whole =
      Tokenizer::from_json(R"({"model":)" + model + R"(,"ignore_merges":true}})", "test");
  std::mt19937 random(1);
  for (int round = 0; round < 2000; ++round) {
    std::string text;
    for (unsigned i = 0; i < 6 + random() % 20; ++i) text.push_back("_abc"[random() % 4]);
    ASSERT_EQ(cut.encode(text, {}), whole.encode(text, {})) << text;
  }
}

std::string varint_field(int field, std::string_view payload) {
  std::string bytes(1, static_cast<char>(field << 3 | 2));
  bytes.push_back(static_cast<char>(payload.size()));
  return bytes.append(payload);
}

// A tiny SentencePiece BPE model: <unk>, <s>, and a few pieces with falling scores.
std::string tiny_sentencepiece() {
  std::string model;
  const auto add = [&](const std::string& text, char type, float score) {
    std::string piece = varint_field(1, text);
    piece += '\x15';
    const auto bits = std::bit_cast<uint32_t>(score);
    for (int shift = 0; shift < 32; shift += 8) piece.push_back(static_cast<char>(bits >> shift));
    piece += '\x18';
    piece += type;
    model += varint_field(1, piece);
  };
  add("<unk>", 2, 0);
  add("<s>", 3, 0);
  add("ab", 1, -1);
  add("\u2581", 1, -2);
  add("a", 1, -3);
  add("b", 1, -4);
  return model + varint_field(2, std::string("\x18\x02", 2));
}

TEST(SentencePiece, TinyModel) {
  const Tokenizer tokenizer = Tokenizer::from_sentencepiece(tiny_sentencepiece(), "tiny.model");
  EXPECT_EQ(tokenizer.encode("abb  a", {}), (Ids{3, 2, 5, 3, 4}));
  EXPECT_EQ(tokenizer.encode("axyb", {.add_special = true}), (Ids{1, 3, 4, 0, 5}));
  EXPECT_EQ(tokenizer.decode(Ids{1, 3, 4, 0, 5, 3, 2}), "a \u2047 b ab");
  EXPECT_EQ(tokenizer.encode("<s>", {}), (Ids{3, 0}));  // control tokens are not read from text
}

// Every damage of a file either loads (and then works) or is refused.
void expect_sane(const std::function<Tokenizer()>& load) {
  try {
    const Tokenizer tokenizer = load();
    EXPECT_TRUE(is_valid_utf8(tokenizer.decode(tokenizer.encode("ab <s> x\u00E9", {}))));
  } catch (const Error&) {
  }
}

TEST(HostileTokenizer, EveryFlipAndTruncation) {
  const std::string json = read_text_or_gzip(
      std::filesystem::path(kData).parent_path() / "fuzz/corpus/tokenizer_json/bpe_metaspace.json",
      1 << 20);
  const std::string model = tiny_sentencepiece();
  for (size_t at = 0; at <= json.size(); ++at) {
    expect_sane([&] { return Tokenizer::from_json(json.substr(0, at), "cut"); });
    if (at == json.size()) break;
    std::string flipped = json;
    flipped[at] = static_cast<char>(flipped[at] ^ (1 << (at % 8)));
    expect_sane([&] { return Tokenizer::from_json(flipped, "flipped"); });
  }
  for (size_t at = 0; at < model.size(); ++at) {
    expect_sane([&] { return Tokenizer::from_sentencepiece(model.substr(0, at), "cut"); });
    for (int bit = 0; bit < 8; ++bit) {
      std::string flipped = model;
      flipped[at] = static_cast<char>(flipped[at] ^ (1 << bit));
      expect_sane([&] { return Tokenizer::from_sentencepiece(flipped, "flipped"); });
    }
  }
}

TEST(Tiktoken, BadLinesAreRefused) {
  const std::string description = R"({"pattern":"\\w+|\\W","special_tokens":{"<e>":256}})";
  EXPECT_THROW(parse_tiktoken("YQ== 0\n", description, "t"), Error);  // 255 bytes are missing
  EXPECT_THROW(parse_tiktoken("YQ= 0\n", description, "t"), Error);
  EXPECT_THROW(parse_tiktoken("YQ== x\n", description, "t"), Error);
  EXPECT_THROW(parse_tiktoken("YQ==\n", description, "t"), Error);
}

TEST(Tiktoken, RanksAreCheckedAsIds) {
  const std::string description = R"({"pattern":"\\w+|\\W","special_tokens":{}})";
  for (const char* lines :
       {"YQ== 0\nYg== 0\n", "YQ== 0\nYQ== 1\n", "YQ== 2147483648\n", "YQ== -1\n", "", "\n"}) {
    EXPECT_THROW(parse_tiktoken(lines, description, "t"), Error) << lines;
  }
}

TEST(SentencePiece, RepeatedAndAbsentPiecesAreRefused) {
  EXPECT_THROW(Tokenizer::from_sentencepiece(tiny_sentencepiece() + tiny_sentencepiece(), "t"),
               Error);
  EXPECT_THROW(Tokenizer::from_sentencepiece("", "t"), Error);
}

TEST(Gzip, MembersFollowOneAnotherAndNothingElse) {
  const std::string member(
      "\037\213\010\000\000\000\000\000\002\003\113\114\002\000\155\110\203\236\002\000\000\000",
      22);
  EXPECT_EQ(gunzip(member, 100, "t"), "ab");
  EXPECT_EQ(gunzip(member + member, 100, "t"), "abab");
  EXPECT_THROW(gunzip(member + "junk", 100, "t"), Error);
  EXPECT_THROW(gunzip(member + member.substr(0, 12), 100, "t"), Error);
}

TEST(Gzip, DamageAndBombsAreRefused) {
  const std::string packed =
      read_text_or_gzip(kData + "/tokenizers/gpt2/tokenizer.json.gz", 1 << 30);
  EXPECT_GT(packed.size(), 1'000'000u);
  EXPECT_THROW(read_text_or_gzip(kData + "/tokenizers/gpt2/tokenizer.json.gz", 1 << 20), Error);
  EXPECT_THROW(gunzip("not gzip", 100, "t"), Error);
  EXPECT_THROW(gunzip("", 100, "t"), Error);
}

}  // namespace
}  // namespace klotski
