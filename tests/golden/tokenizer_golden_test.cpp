// Compares every tokenizer with the library its files were made for: the expectations were computed
// once (tests/data/README.md) and cover short texts of 20 kinds and four whole files.

#include <gtest/gtest.h>

#include <filesystem>
#include <map>

#include "base/json.h"
#include "support/sha256.h"
#include "text/detokenizer.h"
#include "text/gzip.h"
#include "text/sentencepiece.h"
#include "text/tokenizer.h"

namespace klotski {
namespace {

constexpr uint64_t kMaxBytes = 64ull << 20;

std::filesystem::path data_path(const std::string& name) {
  return std::filesystem::path(KLOTSKI_TEST_DATA) / name;
}

std::string read_data(const std::string& name) {
  return read_text_or_gzip(data_path(name), kMaxBytes);
}

struct GoldenCase {
  std::string name;         // name of the test
  std::string source;       // folder or file under tests/data/tokenizers
  std::string expected;     // file under tests/data/tokenizers
  bool has_special = true;  // the expectations name the special tokens that are added
  std::string gguf = "";    // not empty: read as metadata of GGUF that name this way to cut words
};

std::ostream& operator<<(std::ostream& out, const GoldenCase& golden) { return out << golden.name; }

// A tokenizer.json of byte-level BPE as the metadata of a GGUF file.
Json gguf_of_json(const std::string& source, const std::string& pre) {
  const Json file = parse_json(read_data("tokenizers/" + source + "/tokenizer.json.gz"), source);
  std::map<int64_t, std::string> tokens;
  std::map<int64_t, int> types;
  for (const auto& [text, id] : file.at("model").at("vocab").items()) tokens[id] = text;
  for (const Json& added : file.at("added_tokens")) {
    tokens[added.at("id")] = added.at("content");
    types[added.at("id")] = added.at("special").get<bool>() ? 3 : 4;
  }
  Json metadata = {{"tokenizer.ggml.model", "gpt2"}, {"tokenizer.ggml.pre", pre}};
  for (int64_t id = 0; id <= tokens.rbegin()->first; ++id) {
    const bool used = tokens.contains(id);
    metadata["tokenizer.ggml.tokens"].push_back(used ? tokens[id] : fmt::format("[PAD{}]", id));
    metadata["tokenizer.ggml.token_type"].push_back(!used ? 5 : types.contains(id) ? types[id] : 1);
  }
  for (const Json& merge : file.at("model").at("merges")) {
    metadata["tokenizer.ggml.merges"].push_back(
        merge.is_string() ? merge.get<std::string>()
                          : merge[0].get<std::string>() + " " + merge[1].get<std::string>());
  }
  if (pre == "tekken") metadata["tokenizer.ggml.bos_token_id"] = 1;
  return metadata;
}

// A SentencePiece model as the metadata of a GGUF file.
Json gguf_of_sentencepiece(const std::string& source) {
  const SentencePieceFile file =
      read_sentencepiece(read_data("tokenizers/" + source + "/tokenizer.model.gz"), source);
  Json metadata = {{"tokenizer.ggml.model", "llama"},
                   {"tokenizer.ggml.bos_token_id", file.bos_id},
                   {"tokenizer.ggml.add_space_prefix", file.add_dummy_prefix}};
  for (const SentencePieceFile::Piece& piece : file.pieces) {
    metadata["tokenizer.ggml.tokens"].push_back(piece.text);
    metadata["tokenizer.ggml.scores"].push_back(piece.score);
    metadata["tokenizer.ggml.token_type"].push_back(static_cast<int>(piece.type));
  }
  return metadata;
}

Tokenizer load_golden(const GoldenCase& golden) {
  if (golden.gguf.empty()) return Tokenizer::load(data_path("tokenizers/" + golden.source));
  return Tokenizer::from_gguf(golden.gguf == "sentencepiece"
                                  ? gguf_of_sentencepiece(golden.source)
                                  : gguf_of_json(golden.source, golden.gguf),
                              golden.source);
}

class TokenizerGolden : public testing::TestWithParam<GoldenCase> {
 protected:
  const Tokenizer tokenizer_ = load_golden(GetParam());
  const Json expected_ =
      parse_json(read_data("tokenizers/" + GetParam().expected + ".gz"), GetParam().expected);
};

std::string stream_decode(const Tokenizer& tokenizer, const std::vector<TokenId>& ids, bool skip) {
  StreamingDetokenizer stream(tokenizer, skip);
  std::string text;
  for (const TokenId id : ids) text += stream.push(id);
  return text + stream.finish();
}

TEST_P(TokenizerGolden, EveryCaseIsEqual) {
  using Ids = std::vector<TokenId>;
  size_t count = 0;
  for (const Json& test : expected_.at("cases")) {
    SCOPED_TRACE(test.at("id").dump());
    const auto text = test.at("text").get<std::string>();
    const auto ids = test.at("ids").get<Ids>();
    ASSERT_EQ(tokenizer_.encode(text, {}), ids);
    if (GetParam().has_special) {
      ASSERT_EQ(tokenizer_.encode(text, {.add_special = true}),
                test.value("ids_with_special", ids));
    }
    if (test.contains("ids_ordinary")) {
      ASSERT_EQ(tokenizer_.encode(text, {.parse_special = false}),
                test.at("ids_ordinary").get<Ids>());
    }
    const std::string decoded = test.value("decoded", text);
    ASSERT_EQ(tokenizer_.decode(ids), decoded);
    ASSERT_EQ(stream_decode(tokenizer_, ids, false), decoded);
    if (test.contains("decoded_skip_special")) {
      const auto skipped = test.at("decoded_skip_special").get<std::string>();
      ASSERT_EQ(tokenizer_.decode(ids, true), skipped);
      ASSERT_EQ(stream_decode(tokenizer_, ids, true), skipped);
    }
    ++count;
  }
  EXPECT_EQ(count, expected_.at("total").get<size_t>());
}

std::vector<GoldenCase> golden_cases() {
  std::vector<GoldenCase> cases;
  for (const std::string name :
       {"gpt2", "mistral-nemo-tekken", "mixtral-8x22b-instruct", "mixtral-8x7b", "olmoe", "qwen2.5",
        "qwen3-moe", "t5-switch", "gpt-oss-o200k"}) {
    cases.push_back({name, name, name + "/expected.json", true});
  }
  for (const auto& [name, cut] :
       std::map<std::string, std::string>{{"gpt2", "gpt-2"},
                                          {"olmoe", "olmo"},
                                          {"qwen2.5", "qwen2"},
                                          {"qwen3-moe", "qwen2"},
                                          {"mistral-nemo-tekken", "tekken"},
                                          {"mixtral-8x7b", "sentencepiece"}}) {
    cases.push_back({name + "-gguf", name, name + "/expected.json", true, cut});
  }
  for (const std::string name : {"mixtral-8x7b", "mixtral-8x22b-instruct"}) {
    cases.push_back({name + "-model", name + "/tokenizer.model.gz",
                     name + "/expected_sentencepiece.json", false});
  }
  for (const std::string name :
       {"spiece", "test_sentencepiece", "test_sentencepiece_bpe", "test_sentencepiece_no_bos",
        "test_sentencepiece_with_bytefallback"}) {
    cases.push_back({name, "spm_fixtures/" + name + ".model.gz",
                     "spm_fixtures/" + name + ".expected.json", false});
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(All, TokenizerGolden, testing::ValuesIn(golden_cases()),
                         [](const auto& test) {
                           std::string name = test.param.name;
                           for (char& letter : name) {
                             if (!std::isalnum(static_cast<unsigned char>(letter))) letter = '_';
                           }
                           return name;
                         });

std::string little_endian(const std::vector<TokenId>& ids) {
  std::string bytes;
  for (const TokenId id : ids) {
    for (int shift = 0; shift < 32; shift += 8) bytes.push_back(static_cast<char>(id >> shift));
  }
  return bytes;
}

TEST(TokenizerWholeFiles, HashesAreEqual) {
  const Json expected = parse_json(read_data("tokenizers/long_expected.json.gz"), "long_expected");
  for (const auto& [name, files] : expected.at("tokenizers").items()) {
    const Tokenizer tokenizer = Tokenizer::load(data_path("tokenizers/" + name));
    for (const auto& [file, result] : files.items()) {
      const std::string text = read_data("text/" + file + ".gz");
      const auto ids = tokenizer.encode(text, {});
      EXPECT_EQ(ids.size(), result.at("n").get<size_t>()) << name << " " << file;
      EXPECT_EQ(sha256_hex(little_endian(ids)), result.at("sha256").get<std::string>())
          << name << " " << file;
    }
  }
}

}  // namespace
}  // namespace klotski
