#pragma once

#include <optional>
#include <vector>

#include "text/byte_trie.h"
#include "text/model.h"

namespace klotski {

struct UnigramOptions {
  std::optional<TokenId> unknown;
  bool byte_fallback = false;
  // SentencePiece adds scores in single precision, Hugging Face in double: ties fall differently.
  bool single_precision = false;
};

struct UnigramPiece {
  TokenId id = 0;
  double score = 0;           // log probability
  bool user_defined = false;  // always preferred to other ways of cutting its text
};

// The most probable way to cut a piece into tokens (Viterbi), linear in its length.
class UnigramModel : public TokenModel {
 public:
  // `pieces` are the pieces that may be used to cut text, with the scores of tokens by id.
  UnigramModel(const Vocabulary& vocabulary, std::vector<UnigramPiece> pieces,
               UnigramOptions options);

  void tokenize(std::string_view piece, std::vector<TokenId>& out) const override;

 private:
  struct Node {  // the best way to reach a byte offset
    double score = 0;
    uint32_t begin = 0;  // begin of the last token
    TokenId id = -1;     // -1: unknown character
    bool reached = false;
  };

  std::vector<Node> best_paths(std::string_view piece) const;
  void reach(std::vector<Node>& nodes, size_t end, const Node& candidate) const;
  void emit_unknown(std::string_view run, std::vector<TokenId>& out) const;

  const Vocabulary& vocabulary_;
  std::vector<UnigramPiece> pieces_;
  UnigramOptions options_;
  ByteTrie trie_;  // values are indices into pieces_
  double least_score_ = 0;
  double greatest_score_ = 0;
};

}  // namespace klotski
