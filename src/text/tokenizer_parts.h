#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>

#include "text/added_tokens.h"
#include "text/decoder.h"
#include "text/model.h"
#include "text/normalizer.h"
#include "text/post_processor.h"
#include "text/pretokenizer.h"
#include "text/vocabulary.h"

namespace klotski {

// The stations of a tokenizer in the order text passes them. The model and the decoder may refer to
// the vocabulary, so the whole stays where it is made.
struct TokenizerParts {
  Vocabulary vocabulary;  // vocabulary of the model alone
  AddedTokens added;
  std::unique_ptr<Normalizer> normalizer;  // null: none
  PreTokenizerChain pretokenizer;
  std::unique_ptr<TokenModel> model;
  PostProcessor post_processor;
  Decoder decoder = make_joining_decoder();
  std::unordered_set<TokenId> control;  // special tokens that are never found in text

  // Whether normalising brings the text of a special token about in `text`, which must be valid.
  bool becomes_special(std::string_view text) const;
  // The text that the decoder is given for an id; nullopt where the id is left out.
  std::optional<std::string_view> decoded_text(TokenId id, bool skip_special) const;
};

std::shared_ptr<const TokenizerParts> parse_tokenizer_json(std::string_view json,
                                                           const std::string& what);
std::shared_ptr<const TokenizerParts> parse_sentencepiece(std::string_view bytes,
                                                          const std::string& what);

// `description` is the JSON file of the ranks: {"pattern": "..", "special_tokens": {text: id}}.
std::shared_ptr<const TokenizerParts> parse_tiktoken(std::string_view ranks,
                                                     std::string_view description,
                                                     const std::string& what);

// The tokenizer that the metadata of a GGUF file describe, an object with keys such as
// "tokenizer.ggml.tokens".
std::shared_ptr<const TokenizerParts> parse_gguf_tokenizer(const Json& metadata,
                                                           const std::string& what);

// Whether the metadata of a GGUF file ask for the begin token before a text: where they do not say,
// SentencePiece does, and BPE by its way to cut words.
bool gguf_text_begins(const JsonFields& metadata);

}  // namespace klotski
