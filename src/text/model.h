#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/json.h"
#include "text/vocabulary.h"

namespace klotski {

// Turns one piece of text into tokens. Thread-safe.
class TokenModel {
 public:
  virtual ~TokenModel() = default;

  virtual void tokenize(std::string_view piece, std::vector<TokenId>& out) const = 0;

  // The end of the first stretch of text[begin..] that can be tokenised without the rest; 'end of
  // text' is always right.
  virtual size_t safe_cut(std::string_view text, size_t begin) const {
    (void)begin;
    return text.size();
  }
};

// Reads the "model" object of a tokenizer.json: the vocabulary is put into `vocabulary`, which must
// outlive the model. Throws on an unknown type, naming it.
std::unique_ptr<TokenModel> parse_model(const JsonFields& fields, const std::string& what,
                                        Vocabulary& vocabulary);

}  // namespace klotski
