// Tokenizers in the metadata of GGUF files: small ones, and metadata that are refused. Real ones
// are compared with other libraries in tests/golden.

#include <gtest/gtest.h>

#include "base/error.h"
#include "text/tokenizer.h"
#include "text/tokenizer_config.h"

namespace klotski {
namespace {

using Ids = std::vector<TokenId>;

Json byte_level_metadata() {
  return {{"tokenizer.ggml.model", "gpt2"},
          {"tokenizer.ggml.pre", "gpt-2"},
          {"tokenizer.ggml.tokens", {"a", "b", "ab", "<s>", "<u>", "</s>"}},
          {"tokenizer.ggml.token_type", {1, 1, 1, 3, 4, 3}},
          {"tokenizer.ggml.merges", {"a b"}},
          {"tokenizer.ggml.bos_token_id", 3},
          {"tokenizer.ggml.eos_token_id", 5},
          {"tokenizer.chat_template", "{{ bos_token }}"}};
}

Json sentencepiece_metadata() {
  return {{"tokenizer.ggml.model", "llama"},
          {"tokenizer.ggml.tokens", {"<unk>", "<s>", "\u2581", "a", "\u2581a", "<0x0A>"}},
          {"tokenizer.ggml.token_type", {2, 3, 1, 1, 1, 6}},
          {"tokenizer.ggml.scores", {0.0, 0.0, -2.0, -3.0, -1.0, 0.0}},
          {"tokenizer.ggml.bos_token_id", 1}};
}

TEST(GgufTokenizer, ByteLevel) {
  Json metadata = byte_level_metadata();
  const Tokenizer tokenizer = Tokenizer::from_gguf(metadata, "f");
  EXPECT_EQ(tokenizer.encode("abba<u><s>", {}), (Ids{2, 1, 0, 4, 3}));
  EXPECT_EQ(tokenizer.decode(Ids{3, 2, 4}), "<s>ab<u>");
  EXPECT_EQ(tokenizer.decode(Ids{3, 2, 4}, true), "ab<u>");
  EXPECT_TRUE(tokenizer.is_special(3) && !tokenizer.is_special(4));
  EXPECT_EQ(tokenizer.encode("a", {.add_special = true}), (Ids{0}));
  metadata["tokenizer.ggml.add_bos_token"] = true;
  metadata["tokenizer.ggml.add_eos_token"] = true;
  EXPECT_EQ(Tokenizer::from_gguf(metadata, "f").encode("a", {.add_special = true}), (Ids{3, 0, 5}));
}

TEST(GgufTokenizer, SentencePiece) {
  Json metadata = sentencepiece_metadata();
  const Tokenizer tokenizer = Tokenizer::from_gguf(metadata, "f");
  EXPECT_EQ(tokenizer.encode("a a\n", {.add_special = true}), (Ids{1, 4, 4, 5}));
  EXPECT_EQ(tokenizer.encode("<s>a", {}), (Ids{1, 4}));
  EXPECT_EQ(tokenizer.decode(Ids{1, 4, 4, 5}, true), "a a\n");
  metadata["tokenizer.ggml.add_space_prefix"] = false;
  EXPECT_EQ(Tokenizer::from_gguf(metadata, "f").encode("a a", {}), (Ids{3, 4}));
}

// A user-defined piece is found anywhere, not only where the dummy prefix stands before it.
TEST(GgufTokenizer, UserDefinedPiecesAreFoundAmidText) {
  Json metadata = sentencepiece_metadata();
  metadata["tokenizer.ggml.tokens"].push_back("<u>");
  metadata["tokenizer.ggml.token_type"].push_back(4);
  metadata["tokenizer.ggml.scores"].push_back(0.0);
  const Tokenizer tokenizer = Tokenizer::from_gguf(metadata, "f");
  EXPECT_EQ(tokenizer.encode("a<u>a<u>", {}), (Ids{4, 6, 3, 6}));
  EXPECT_EQ(tokenizer.decode(Ids{4, 6, 3, 6}), "a<u>a<u>");
}

TEST(GgufTokenizer, Settings) {
  const TokenizerConfig config = TokenizerConfig::from_gguf(byte_level_metadata(), "f");
  EXPECT_EQ(config.bos_token, "<s>");
  EXPECT_EQ(config.eos_token, "</s>");
  EXPECT_EQ(config.pad_token, "");
  EXPECT_EQ(config.chat_template, "{{ bos_token }}");
  EXPECT_FALSE(TokenizerConfig::from_gguf(Json::object(), "f").chat_template.has_value());
  EXPECT_THROW(TokenizerConfig::from_gguf({{"tokenizer.ggml.bos_token_id", 0}}, "f"), Error);
}

// A begin token that is another than the end token says nothing about texts.
TEST(GgufTokenizer, SettingsSayWhetherATextBegins) {
  const auto begins = [](const Json& metadata) {
    return TokenizerConfig::from_gguf(metadata, "f").add_bos_token;
  };
  Json metadata = byte_level_metadata();
  for (const char* cut : {"gpt-2", "olmo", "qwen2"}) {
    metadata["tokenizer.ggml.pre"] = cut;
    EXPECT_EQ(begins(metadata), false) << cut;
  }
  for (const char* cut : {"llama-bpe", "tekken"}) {
    metadata["tokenizer.ggml.pre"] = cut;
    EXPECT_EQ(begins(metadata), true) << cut;
  }
  metadata["tokenizer.ggml.add_bos_token"] = false;
  EXPECT_EQ(begins(metadata), false);
  EXPECT_EQ(begins(sentencepiece_metadata()), true);
}

// Converters fill a vocabulary up with unused pieces.
TEST(GgufTokenizer, UnusedPiecesAreNeverProduced) {
  const auto with_unused = [](const char* piece) {
    Json metadata = sentencepiece_metadata();
    metadata["tokenizer.ggml.tokens"].push_back(piece);
    metadata["tokenizer.ggml.token_type"].push_back(5);
    metadata["tokenizer.ggml.scores"].push_back(0.0);
    return metadata;
  };
  EXPECT_EQ(Tokenizer::from_gguf(with_unused("aa"), "f").encode("aa", {}), (Ids{4, 3}));
  const Tokenizer tokenizer = Tokenizer::from_gguf(with_unused("[PAD6]"), "f");
  EXPECT_EQ(tokenizer.encode("[PAD6]", {}), (Ids{2, 0}));
  EXPECT_EQ(tokenizer.decode(Ids{6}), "[PAD6]");
  EXPECT_THROW(Tokenizer::from_gguf(with_unused("b"), "f"), Error);
}

// The message of the error for metadata with one value changed; null takes it away.
std::string refused_metadata(Json metadata, const char* key, const Json& value) {
  metadata[key] = value;
  try {
    Tokenizer::from_gguf(metadata, "f");
    TokenizerConfig::from_gguf(metadata, "f");
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::bad_model);
    return error.what();
  }
  return "no error";
}

TEST(GgufTokenizer, RefusesBadMetadata) {
  struct Case {
    const char* key;
    Json value;
    const char* message;
  };
  const std::vector<Case> cases = {
      {"tokenizer.ggml.model", "bert", "expected gpt2 or llama, found 'bert'"},
      {"tokenizer.ggml.model", nullptr, "tokenizer.ggml.model"},
      {"tokenizer.ggml.pre", "unheard-of", "expected one of gpt-2, olmo, qwen2"},
      {"tokenizer.ggml.pre", nullptr, "tokenizer.ggml.pre"},
      {"tokenizer.ggml.tokens", Json::array(), "expected an array of texts"},
      {"tokenizer.ggml.tokens", "a", "tokenizer.ggml.tokens"},
      {"tokenizer.ggml.tokens", {"a", "b", "ab", "<s>", "a", "</s>"}, "found 'a' twice"},
      {"tokenizer.ggml.token_type", {1, 1}, "one for each of the 6 tokens"},
      {"tokenizer.ggml.token_type", {1, 1, 1, 3, 4, 7}, "tokenizer.ggml.token_type"},
      {"tokenizer.ggml.merges", nullptr, "tokenizer.ggml.merges"},
      {"tokenizer.ggml.merges", {"a c"}, "merges"},
      {"tokenizer.ggml.eos_token_id", 6, "tokenizer.ggml.eos_token_id"},
      {"tokenizer.chat_template", 1, "tokenizer.chat_template"},
  };
  for (const Case& one : cases) {
    EXPECT_NE(refused_metadata(byte_level_metadata(), one.key, one.value).find(one.message),
              std::string::npos)
        << refused_metadata(byte_level_metadata(), one.key, one.value);
  }
  EXPECT_NE(refused_metadata(sentencepiece_metadata(), "tokenizer.ggml.scores", {1.0})
                .find("one for each of the 6 tokens"),
            std::string::npos);
  EXPECT_NE(
      refused_metadata(sentencepiece_metadata(), "tokenizer.ggml.token_type", {2, 2, 1, 1, 1, 6})
          .find("more than one unknown piece"),
      std::string::npos);
}

}  // namespace
}  // namespace klotski
