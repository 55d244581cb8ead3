#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"

namespace klotski {

// The files that make a tokenizer, to be written to a model's folder.
struct TokenizerFiles {
  struct NamedText {
    std::string name;
    std::string content;
  };
  std::vector<NamedText> files;
  int64_t tokens = 0;  // largest id + 1
  std::optional<TokenId> begin_token;
  std::optional<TokenId> end_token;
};

// Tokens of the program's own tokenizer that a vocabulary must have room for.
int64_t byte_tokenizer_tokens();

// The program's own tokenizer: byte-level BPE, which takes any text. Ids that no text needs, up to
// the size of the vocabulary, are made-up words, so that any output of a random model can be read.
TokenizerFiles byte_tokenizer(int64_t vocabulary);

// The tokenizer of a model folder, checked by loading it.
TokenizerFiles copied_tokenizer(const std::filesystem::path& folder);

}  // namespace klotski
