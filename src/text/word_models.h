#pragma once

#include <optional>
#include <string>

#include "text/model.h"

namespace klotski {

// Greedy longest match from the left; all tokens of a word but the first carry a prefix. A word
// that cannot be covered is one unknown token.
class WordPieceModel : public TokenModel {
 public:
  struct Options {
    TokenId unknown = 0;
    std::string continuing_prefix = "##";
    size_t max_characters = 100;
  };
  WordPieceModel(const Vocabulary& vocabulary, Options options)
      : vocabulary_(vocabulary), options_(std::move(options)) {}
  void tokenize(std::string_view piece, std::vector<TokenId>& out) const override;

 private:
  const Vocabulary& vocabulary_;
  Options options_;
};

// Every piece is one token, known or not.
class WordLevelModel : public TokenModel {
 public:
  WordLevelModel(const Vocabulary& vocabulary, TokenId unknown)
      : vocabulary_(vocabulary), unknown_(unknown) {}
  void tokenize(std::string_view piece, std::vector<TokenId>& out) const override {
    out.push_back(vocabulary_.find(piece).value_or(unknown_));
  }

 private:
  const Vocabulary& vocabulary_;
  TokenId unknown_;
};

}  // namespace klotski
