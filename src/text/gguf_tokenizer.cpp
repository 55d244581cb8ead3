// Tokenizers in the metadata of GGUF files: byte-level BPE ("gpt2"), whose way to cut text into
// words has a name, and SentencePiece BPE ("llama").

#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "text/sentencepiece.h"
#include "text/tokenizer_parts.h"

namespace klotski {

namespace {

constexpr std::string_view kTokens = "tokenizer.ggml.tokens";
constexpr std::string_view kTypes = "tokenizer.ggml.token_type";
constexpr std::string_view kPre = "tokenizer.ggml.pre";
constexpr std::string_view kModel = "tokenizer.ggml.model";

// The way to cut text into words for BPE, by the name that files give it.
struct WordCut {
  std::string_view name;
  std::string_view pattern;  // empty: that of GPT-2
  bool composes = false;     // text is normalised to NFC before
  bool whole_words = false;  // a word that is a token is not made of merges
  bool begins = false;       // a text begins with the begin token where metadata do not say
};

constexpr std::string_view kQwenPattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kLlama3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kTekkenPattern =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
    R"(|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

constexpr std::array kWordCuts = {
    WordCut{.name = "gpt-2", .pattern = ""},
    WordCut{.name = "olmo", .pattern = "", .composes = true},
    WordCut{.name = "qwen2", .pattern = kQwenPattern, .composes = true},
    WordCut{.name = "llama-bpe", .pattern = kLlama3Pattern, .whole_words = true, .begins = true},
    WordCut{.name = "tekken", .pattern = kTekkenPattern, .whole_words = true, .begins = true},
};

// Types of tokens, with the numbers of SentencePiece.
using Type = SentencePieceFile::Type;

struct GgufToken {
  std::string text;
  Type type = Type::normal;
};

std::vector<GgufToken> read_gguf_tokens(const JsonFields& metadata) {
  auto texts = metadata.strings(kTokens);
  if (!texts || texts->empty()) metadata.refuse(kTokens, "an array of texts");
  const auto types = metadata.integers(kTypes, 1, 6);
  if (types && types->size() != texts->size()) {
    metadata.refuse(kTypes, fmt::format("one for each of the {} tokens", texts->size()));
  }
  std::vector<GgufToken> tokens(texts->size());
  for (size_t i = 0; i < tokens.size(); ++i) {
    tokens[i].text = std::move((*texts)[i]);
    if (types) tokens[i].type = static_cast<Type>((*types)[i]);
  }
  return tokens;
}

// Begin and end tokens around a text, where they are wanted.
PostProcessor read_around(const JsonFields& metadata, size_t tokens) {
  PostProcessor around;
  const auto add = [&](std::string_view kind, bool wanted, std::vector<TokenId>& ids) {
    const std::string id = fmt::format("tokenizer.ggml.{}_token_id", kind);
    if (!wanted || !metadata.has(id)) return;
    ids.push_back(static_cast<TokenId>(metadata.integer(id, 0, static_cast<int64_t>(tokens) - 1)));
  };
  add("bos", gguf_text_begins(metadata), around.before);
  add("eos", metadata.boolean_or("tokenizer.ggml.add_eos_token", false), around.after);
  return around;
}

// Tokens that are found in text as they stand. Control tokens and the unknown one are special.
void add_found_tokens(const std::vector<GgufToken>& tokens, bool user_defined,
                      const std::string& what, TokenizerParts& parts) {
  for (size_t i = 0; i < tokens.size(); ++i) {
    const bool special = tokens[i].type == Type::control || tokens[i].type == Type::unknown;
    if (!special && !(user_defined && tokens[i].type == Type::user_defined)) continue;
    AddedToken token;
    token.id = static_cast<TokenId>(i);
    token.content = tokens[i].text;
    token.special = special;
    parts.added.add(std::move(token), parts.vocabulary, what);
  }
}

// Null where the name is not known.
const WordCut* find_word_cut(std::string_view name) {
  for (const WordCut& cut : kWordCuts) {
    if (cut.name == name) return &cut;
  }
  return nullptr;
}

const WordCut& read_word_cut(const JsonFields& metadata) {
  if (const WordCut* cut = find_word_cut(metadata.string(kPre))) return *cut;
  std::string known;
  for (const WordCut& cut : kWordCuts) {
    known += (known.empty() ? "" : ", ") + std::string(cut.name);
  }
  metadata.refuse(kPre, "one of " + known);
}

Json byte_level(bool use_regex) {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", false},
          {"trim_offsets", true},
          {"use_regex", use_regex}};
}

PreTokenizerChain make_word_cut(const WordCut& cut, const std::string& what) {
  Json steps = Json::array();
  if (!cut.pattern.empty()) {
    steps.push_back({{"type", "Split"},
                     {"pattern", {{"Regex", cut.pattern}}},
                     {"behavior", "Isolated"},
                     {"invert", false}});
  }
  steps.push_back(byte_level(cut.pattern.empty()));
  const Json chain = {{"type", "Sequence"}, {"pretokenizers", std::move(steps)}};
  return parse_pretokenizer(JsonFields(chain, what), what);
}

void add_byte_level(const JsonFields& metadata, const std::string& what, TokenizerParts& parts) {
  const WordCut& cut = read_word_cut(metadata);
  const std::vector<GgufToken> tokens = read_gguf_tokens(metadata);
  Json vocabulary = Json::object();
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (!vocabulary.emplace(tokens[i].text, i).second) {
      fail(ErrorKind::bad_model, "{}: {}: expected each token once, found {} twice", what, kTokens,
           in_quotes(tokens[i].text));
    }
  }
  const Json* merges = metadata.find("tokenizer.ggml.merges");
  if (merges == nullptr) metadata.refuse("tokenizer.ggml.merges", "an array of texts");
  const Json model = {{"type", "BPE"},
                      {"vocab", std::move(vocabulary)},
                      {"merges", *merges},
                      {"ignore_merges", cut.whole_words}};
  parts.model = parse_model(JsonFields(model, what), what, parts.vocabulary);
  const Json composes = {{"type", "NFC"}};
  if (cut.composes) parts.normalizer = parse_normalizer(JsonFields(composes, what), what);
  parts.pretokenizer = make_word_cut(cut, what);
  const Json decoder = byte_level(true);
  parts.decoder = parse_decoder(JsonFields(decoder, what), what);
  parts.post_processor = read_around(metadata, tokens.size());
  add_found_tokens(tokens, true, what, parts);
}

// Spaces for marks, bytes for byte tokens, and no space in front.
Json sentencepiece_decoder(bool add_prefix) {
  Json steps = Json::array();
  steps.push_back({{"type", "Replace"}, {"pattern", {{"String", kSpaceMark}}}, {"content", " "}});
  steps.push_back({{"type", "ByteFallback"}});
  steps.push_back({{"type", "Fuse"}});
  if (add_prefix) {
    steps.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  }
  return {{"type", "Sequence"}, {"decoders", std::move(steps)}};
}

void add_sentencepiece(const JsonFields& metadata, const std::string& what, TokenizerParts& parts) {
  constexpr std::string_view kScores = "tokenizer.ggml.scores";
  std::vector<GgufToken> tokens = read_gguf_tokens(metadata);
  const auto scores = metadata.numbers(kScores, -1e30, 1e30);
  if (!scores || scores->size() != tokens.size()) {
    metadata.refuse(kScores, fmt::format("one for each of the {} tokens", tokens.size()));
  }
  SentencePieceFile file;
  file.model_type = SentencePieceFile::ModelType::bpe;
  file.unused_pads = true;
  file.add_dummy_prefix = metadata.boolean_or("tokenizer.ggml.add_space_prefix", true);
  file.remove_extra_whitespaces =
      metadata.boolean_or("tokenizer.ggml.remove_extra_whitespaces", false);
  for (size_t i = 0; i < tokens.size(); ++i) {
    file.pieces.push_back({tokens[i].text, static_cast<float>((*scores)[i]), tokens[i].type});
    file.byte_fallback = file.byte_fallback || tokens[i].type == Type::byte;
  }
  add_sentencepieces(file, what, parts);
  const Json decoder = sentencepiece_decoder(file.add_dummy_prefix);
  parts.decoder = parse_decoder(JsonFields(decoder, what), what);
  parts.post_processor = read_around(metadata, tokens.size());
  add_found_tokens(tokens, false, what, parts);
}

}  // namespace

bool gguf_text_begins(const JsonFields& metadata) {
  const WordCut* cut = find_word_cut(metadata.string_or(kPre, ""));
  const bool begins = metadata.string_or(kModel, "") == "llama" || (cut != nullptr && cut->begins);
  return metadata.boolean_or("tokenizer.ggml.add_bos_token", begins);
}

std::shared_ptr<const TokenizerParts> parse_gguf_tokenizer(const Json& metadata,
                                                           const std::string& what) {
  const JsonFields fields(metadata, what);
  const std::string model = fields.string(kModel);
  auto parts = std::make_shared<TokenizerParts>();
  if (model == "gpt2") {
    add_byte_level(fields, what, *parts);
  } else if (model == "llama") {
    add_sentencepiece(fields, what, *parts);
  } else {
    fields.refuse(kModel, "gpt2 or llama");
  }
  // No token's text is normalised: the dummy prefix would tie user-defined pieces to the start.
  parts->added.build(nullptr, what);
  return parts;
}

}  // namespace klotski
