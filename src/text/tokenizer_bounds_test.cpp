// Small files and texts must not cost much: growth, collisions and repetition are bounded.

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/testing.h"
#include "text/hash.h"
#include "text/precompiled_charsmap.h"
#include "text/tokenizer.h"
#include "text/vocabulary.h"
#include "text/word_cache.h"

namespace klotski {
namespace {

using Ids = std::vector<TokenId>;

Tokenizer with(const std::string& rest) {
  return Tokenizer::from_json(
      R"({"model":{"type":"BPE","vocab":{"a":0,"b":1," ":2},"merges":[]},)" + rest + "}",
      "test.json");
}

template <typename Action>
std::string message_of(Action action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::bad_model);
    return error.what();
  }
  return "accepted";
}

std::string sequence(const std::string& step, size_t count) {
  std::string steps;
  for (size_t i = 0; i < count; ++i) steps += (i == 0 ? "" : ",") + step;
  return R"("normalizer":{"type":"Sequence","normalizers":[)" + steps + "]}";
}

const std::string kDoubling = R"({"type":"Replace","pattern":{"String":"a"},"content":"aa"})";

TEST(TokenizerBounds, NormalizersThatDoubleAreRefused) {
  const std::string added = R"(,"added_tokens":[{"id":9,"content":"a","normalized":true}])";
  const std::string message = message_of([&] { with(sequence(kDoubling, 40) + added); });
  EXPECT_NE(message.find("Replace"), std::string::npos) << message;
  EXPECT_NE(message.find("test.json"), std::string::npos) << message;

  const Tokenizer tokenizer = with(sequence(kDoubling, 40));
  EXPECT_NE(message_of([&] { tokenizer.encode("a", {}); }).find("Replace"), std::string::npos);
  EXPECT_EQ(tokenizer.encode("b", {}), Ids{1});
  EXPECT_EQ(with(sequence(kDoubling, 3)).encode("a", {}).size(), 8u);

  const Tokenizer spelling = with(sequence(R"({"type":"ByteLevel"})", 100));
  EXPECT_NE(message_of([&] { spelling.encode("\n", {}); }).find("ByteLevel"), std::string::npos);
}

TEST(TokenizerBounds, SpellingsOfAddedTokensAreBoundedTogether) {
  std::string added;
  for (int i = 0; i < 4400; ++i) {
    added += fmt::format(R"({}{{"id":{},"content":"{}{}","normalized":true}})", i == 0 ? "" : ",",
                         100 + i, std::string(1000, 'a'), i);
  }
  added = R"(,"added_tokens":[)" + added + "]";
  EXPECT_EQ(message_of([&] { with(sequence(kDoubling, 1) + added); }), "accepted");
  const std::string message = message_of([&] { with(sequence(kDoubling, 2) + added); });
  EXPECT_NE(message.find("test.json: the added tokens"), std::string::npos) << message;
  EXPECT_NE(message_of([&] { with(sequence(kDoubling, 3) + added); }).find("Replace"),
            std::string::npos);
}

TEST(TokenizerBounds, OtherRewritingIsBoundedToo) {
  const std::string prefix(2 << 20, 'b');
  const Tokenizer tokenizer =
      with(R"("normalizer":{"type":"Prepend","prepend":")" + prefix + R"("})");
  EXPECT_NE(message_of([&] { tokenizer.encode("a", {}); }).find("Prepend"), std::string::npos);

  std::string steps = R"({"type":"ByteLevel","add_prefix_space":false,"use_regex":false})";
  for (int i = 0; i < 5; ++i) steps += "," + steps;
  const Tokenizer spelling =
      with(R"("pre_tokenizer":{"type":"Sequence","pretokenizers":[)" + steps + "]}");
  EXPECT_NE(message_of([&] { spelling.encode("\n", {}); }).find("pre-tokenizer"),
            std::string::npos);

  std::string doubling = kDoubling;
  for (int i = 0; i < 6; ++i) doubling += "," + doubling;
  const Tokenizer decoding = with(R"("decoder":{"type":"Sequence","decoders":[)" + doubling + "]}");
  EXPECT_NE(message_of([&] { decoding.decode(Ids{0}); }).find("Replace"), std::string::npos);
}

TEST(TokenizerBounds, StepsAreCountedAcrossNesting) {
  EXPECT_EQ(message_of([] { with(sequence(R"({"type":"NFC"})", 200)); }), "accepted");
  EXPECT_NE(message_of([] { with(sequence(R"({"type":"NFC"})", 300)); }).find("256"),
            std::string::npos);
  const std::string nested =
      R"({"type":"Sequence","normalizers":[{"type":"NFC"},{"type":"NFC"},{"type":"NFC"}]})";
  EXPECT_NE(message_of([&] { with(sequence(nested, 90)); }).find("256"), std::string::npos);
}

// A double array with one rule: "a" becomes `replacement`.
std::string charsmap_of_a(const std::string& replacement) {
  constexpr uint32_t kLetter = 'a', kLeaf = 200;
  std::vector<uint32_t> units(256);
  units[kLetter] = (kLetter ^ kLeaf) << 10 | 0x100 | kLetter;
  units[kLeaf] = 0x80000000u;
  std::string blob;
  const auto add = [&](uint32_t value) {
    for (int shift = 0; shift < 32; shift += 8) blob.push_back(static_cast<char>(value >> shift));
  };
  add(static_cast<uint32_t>(units.size() * 4));
  for (const uint32_t unit : units) add(unit);
  return blob + replacement + '\0';
}

TEST(TokenizerBounds, CharsmapStopsGrowing) {
  const PrecompiledCharsmap charsmap(charsmap_of_a(std::string(1000, 'b')), "test");
  std::string text = "xax";
  charsmap.normalize_by_grapheme(text, 1 << 20);
  EXPECT_EQ(text, "x" + std::string(1000, 'b') + "x");
  text.assign(1'000'000, 'a');
  charsmap.normalize_by_grapheme(text, 1 << 20);
  EXPECT_GT(text.size(), size_t{1} << 20);
  EXPECT_LE(text.size(), (size_t{1} << 20) + 1000);
}

TEST(TokenizerBounds, SentencePieceCharsmapIsBounded) {
  const auto field = [](int number, const std::string& payload) {
    std::string bytes(1, static_cast<char>(number << 3 | 2));
    size_t size = payload.size();
    for (; size > 127; size >>= 7) bytes.push_back(static_cast<char>(size | 128));
    bytes.push_back(static_cast<char>(size));
    return bytes + payload;
  };
  const std::string model = field(1, field(1, "<unk>") + "\x18\x02") + field(1, field(1, "b")) +
                            field(3, field(2, charsmap_of_a(std::string(2 << 20, 'b'))));
  const Tokenizer tokenizer = Tokenizer::from_sentencepiece(model, "test.model");
  EXPECT_EQ(tokenizer.encode("b", {}), (Ids{0, 1}));
  EXPECT_NE(message_of([&] { tokenizer.encode("a", {}); }).find("test.model"), std::string::npos);
}

TEST(TokenizerBounds, PostProcessorAddsFewTokens) {
  std::string ids = "1";
  for (int i = 1; i < 600; ++i) ids += ",1";
  const auto around = [&](const std::string& more) {
    return R"("post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"s"}},)" +
           more + R"({"Sequence":{"id":"A"}}],"special_tokens":{"s":{"ids":[)" + ids + "]}}}";
  };
  EXPECT_EQ(with(around("")).encode("a", {.add_special = true}).size(), 601u);
  const std::string twice = around(R"({"SpecialToken":{"id":"s"}},)");
  EXPECT_NE(message_of([&] { with(twice); }).find("1024"), std::string::npos);
}

TEST(TokenizerBounds, WordCacheSurvivesCollisions) {
  WordCache cache;
  const auto word = [](int i) { return "word" + std::to_string(i); };
  for (int i = 0; i < 50'000; ++i) cache.insert(word(i), 7, Ids{i});
  int found = 0;
  for (int i = 0; i < 50'000; ++i) {
    Ids ids;
    if (!cache.append(word(i), 7, ids)) continue;
    EXPECT_EQ(ids, Ids{i});
    ++found;
  }
  EXPECT_GT(found, 0);
  EXPECT_LT(found, 100);
}

TEST(TokenizerBounds, WordCacheKeepsWords) {
  WordCache cache;
  const HashKey key = HashKey::of_process();
  int found = 0;
  for (int i = 0; i < 20'000; ++i) {
    const std::string word = std::to_string(i);
    cache.insert(word, key.hash(word), Ids{i, i});
  }
  for (int i = 0; i < 20'000; ++i) {
    const std::string word = std::to_string(i);
    Ids ids;
    if (!cache.append(word, key.hash(word), ids)) continue;
    EXPECT_EQ(ids, (Ids{i, i}));
    ++found;
  }
  EXPECT_GT(found, 19'000);
}

TEST(TokenizerBounds, HashesDependOnTheKey) {
  const HashKey one{1, 0x9E3779B97F4A7C15ull}, other{2, 0xD6E8FEB86659FD93ull};
  EXPECT_NE(one.hash("token"), other.hash("token"));
  EXPECT_EQ(HashKey::of_process().hash("token"), HashKey::of_process().hash("token"));
  // Multiplying by a public number and folding the halves lets these cancel under any seed.
  std::string first(16, 'x'), second = first;
  second[7] = static_cast<char>(second[7] ^ 0x80);
  second[15] = static_cast<char>(second[15] ^ 0x80);
  second[11] = static_cast<char>(second[11] ^ 0x80);
  EXPECT_NE(HashKey::of_process().hash(first), HashKey::of_process().hash(second));
  EXPECT_NE(one.hash(std::string_view("\0", 1)), one.hash(std::string_view("\0\0", 2)));
}

TEST(TokenizerBounds, VocabularyFindsAllOfMany) {
  Vocabulary vocabulary;
  for (int i = 0; i < 100'000; ++i) vocabulary.add("t" + std::to_string(i), i, "test");
  for (int i = 0; i < 100'000; ++i) ASSERT_EQ(vocabulary.find("t" + std::to_string(i)), i);
  EXPECT_EQ(vocabulary.find("t100000"), std::nullopt);
}

TEST(TokenizerBounds, StrippingTokensAreLinear) {
  for (const std::string side : {R"("lstrip":true)", R"("rstrip":true)"}) {
    const Tokenizer tokenizer =
        with(R"("added_tokens":[{"id":9,"content":"  ","special":true,)" + side + "}]");
    const auto encode = [&](int64_t spaces) {
      const std::string text(static_cast<size_t>(spaces), ' ');
      EXPECT_EQ(tokenizer.encode(text, {}).size(), text.size() / 2);
    };
    EXPECT_TRUE(takes_linear_time(encode, 50'000)) << side;
  }
}

class TokenizerFolder : public testing::Test {
 protected:
  TokenizerFolder() {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  ~TokenizerFolder() override { std::filesystem::remove_all(folder_); }

  std::string load_message() const {
    return message_of([&] { Tokenizer::load(folder_); });
  }

  const std::filesystem::path folder_ =
      std::filesystem::path(testing::TempDir()) /
      testing::UnitTest::GetInstance()->current_test_info()->name();
};

TEST_F(TokenizerFolder, LargeFilesAreNotRead) {
  std::ofstream(folder_ / "tokenizer.json") << "{";
  std::filesystem::resize_file(folder_ / "tokenizer.json", uint64_t{129} << 20);  // no disk needed
  EXPECT_NE(load_message().find("128"), std::string::npos) << load_message();
}

TEST_F(TokenizerFolder, SeveralRanksFilesAreNotNone) {
  EXPECT_NE(load_message().find("none of them"), std::string::npos);
  std::ofstream(folder_ / "a.tiktoken") << "";
  std::ofstream(folder_ / "b.tiktoken") << "";
  const std::string message = load_message();
  EXPECT_NE(message.find("2 *.tiktoken"), std::string::npos) << message;
  EXPECT_EQ(message.find("none"), std::string::npos) << message;
}

}  // namespace
}  // namespace klotski
