#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/json.h"
#include "text/span.h"

namespace klotski {

struct TokenizerParts;
class DecodeStream;

// Text to tokens and back, with the results of the library the tokenizer's file was made for:
// Hugging Face tokenizers (tokenizer.json), Google SentencePiece (.model) or tiktoken. Immutable
// and thread-safe; copies share their data.
class Tokenizer {
 public:
  // A folder with tokenizer.json (or tokenizer.json.gz), else tokenizer.model, else a *.tiktoken
  // file and a JSON file that names its pattern and special tokens; or such a file.
  static Tokenizer load(const std::filesystem::path& folder_or_file);
  // Reads the text of a tokenizer.json; `what` names it in errors.
  static Tokenizer from_json(std::string_view json, std::string_view what);
  // Reads the metadata of a GGUF file, an object with keys such as "tokenizer.ggml.tokens".
  static Tokenizer from_gguf(const Json& metadata, std::string_view what);
  // Reads the bytes of a SentencePiece model.
  static Tokenizer from_sentencepiece(std::string_view bytes, std::string_view what);

  struct EncodeOptions {
    // Adds the post-processor's tokens, for instance a begin-of-sequence token. A SentencePiece
    // model has no post-processor: its begin-of-sequence token is added where it defines one.
    bool add_special = false;
    // Turns the text of special added tokens into these tokens. Otherwise it is ordinary text, and
    // only added tokens that are not special are found. SentencePiece's control tokens are never
    // found in text.
    bool parse_special = true;
    // Spans of text that stay ordinary text: special tokens that touch one of these spans of bytes,
    // in ascending order, are not found. The spans refer to `text` as given, valid or not. Where
    // special tokens are looked for in normalised text, a span covers the whole stretch it lies in,
    // up to the nearest tokens found before normalising.
    std::span<const Span> literal = {};
  };
  // Text that is not valid UTF-8 is read with each maximal invalid sequence as one U+FFFD.
  std::vector<TokenId> encode(std::string_view text, EncodeOptions options) const;

  // Spans of the text of special added tokens, in ascending order, to be passed as `literal` to
  // keep them out. One span for all of the text where exact places are not known: where normalising
  // brings such a token about (it may be spelled otherwise in the text), or where the text is not
  // valid UTF-8 and holds one.
  std::vector<Span> find_special(std::string_view text) const;

  // Ids that no token has are left out. Always valid UTF-8.
  std::string decode(std::span<const TokenId> ids, bool skip_special = false) const;

  size_t vocabulary_size() const;  // largest id + 1, added tokens included
  std::optional<TokenId> id_of(std::string_view token) const;
  // The token as the vocabulary spells it; nullopt where no token has the id.
  std::optional<std::string_view> text_of(TokenId id) const;
  bool is_special(TokenId id) const;

 private:
  friend class StreamingDetokenizer;
  explicit Tokenizer(std::shared_ptr<const TokenizerParts> parts) : parts_(std::move(parts)) {}

  std::shared_ptr<const TokenizerParts> parts_;
};

}  // namespace klotski
