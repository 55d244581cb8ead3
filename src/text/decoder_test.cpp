#include "text/decoder.h"

#include <gtest/gtest.h>

#include "text/detokenizer.h"
#include "text/utf8.h"

namespace klotski {
namespace {

using Strings = std::vector<std::string>;

// Decodes and checks on the way that nothing but whole characters comes out.
std::string decoded(const std::string& decoder, const Strings& tokens) {
  const Json json = parse_json(decoder, "test");
  const Decoder parsed = parse_decoder(JsonFields(json, "test"), "test");
  DecodeStream stream(parsed);
  std::string text;
  for (const std::string& token : tokens) {
    text += stream.push(token);
    EXPECT_TRUE(is_valid_utf8(text));
  }
  return text + stream.finish();
}

TEST(Decoder, ByteLevelJoinsBytesAcrossTokens) {
  const std::string byte_level = R"({"type":"ByteLevel"})";
  EXPECT_EQ(decoded(byte_level, {"\u00F0\u0141", "\u013A", "\u0122"}), "\U0001F600");
  EXPECT_EQ(decoded(byte_level, {"\u00F0\u0141", "a"}), "\uFFFDa");
  EXPECT_EQ(decoded(byte_level, {"a", "\u00F0\u0141"}), "a\uFFFD");
  EXPECT_EQ(decoded(byte_level, {"a b"}), "a b");  // a space spells no byte: taken as it stands
}

TEST(Decoder, ByteFallbackRunsAreAllOrNothing) {
  const std::string fallback = R"({"type":"ByteFallback"})";
  EXPECT_EQ(decoded(fallback, {"<0xC3>", "<0xA9>", "x"}), "\u00E9x");
  EXPECT_EQ(decoded(fallback, {"<0xC3>", "<0xA9>", "<0xFF>"}), "\uFFFD\uFFFD\uFFFD");
}

TEST(Decoder, StripWorksPerTokenOrAcross) {
  const std::string strip = R"({"type":"Strip","content":" ","start":1,"stop":1})";
  EXPECT_EQ(decoded(strip, {"  a ", " b"}), " ab");
  const std::string fused = R"({"type":"Sequence","decoders":[{"type":"Fuse"},)" + strip + "]}";
  EXPECT_EQ(decoded(fused, {" ", " a", " ", " "}), " a ");
}

TEST(Decoder, OtherKinds) {
  EXPECT_EQ(decoded(R"({"type":"Metaspace","replacement":"_"})", {"_a", "_b"}), "a b");
  EXPECT_EQ(decoded(R"({"type":"WordPiece"})", {"un", "##do", "it", "."}), "undo it.");
  EXPECT_EQ(decoded(R"({"type":"BPEDecoder"})", {"a</w>", "b</w>"}), "a b");
  EXPECT_EQ(decoded(R"({"type":"Replace","pattern":{"String":"_"},"content":" "})", {"_a"}), " a");
  EXPECT_THROW(decoded(R"({"type":"CTC"})", {}), Error);
}

TEST(Detokenizer, EveryCutOfEveryTokenGivesTheSameText) {
  std::string vocabulary;
  for (int byte = 0; byte < 256; ++byte) {
    vocabulary += fmt::format("{}\"<0x{:02X}>\":{}", byte ? "," : "", byte, byte);
  }
  const Tokenizer tokenizer = Tokenizer::from_json(
      R"({"model":{"type":"BPE","merges":[],"byte_fallback":true,"vocab":{)" + vocabulary +
          R"(,"_":256,"a":257}},"decoder":{"type":"Sequence","decoders":[{"type":"Replace",)"
          R"("pattern":{"String":"_"},"content":" "},{"type":"ByteFallback"},{"type":"Fuse"},)"
          R"({"type":"Strip","content":" ","start":1,"stop":0}]}})",
      "test.json");
  const auto ids = tokenizer.encode("_a_\U0001F600\u00E9a_a\xF0\x9F", {});
  for (size_t count = 0; count <= ids.size(); ++count) {
    StreamingDetokenizer stream(tokenizer);
    std::string text;
    for (size_t i = 0; i < count; ++i) {
      text += stream.push(ids[i]);
      ASSERT_TRUE(is_valid_utf8(text));
    }
    EXPECT_EQ(text + stream.finish(), tokenizer.decode(std::span(ids).first(count)));
  }
}

}  // namespace
}  // namespace klotski
