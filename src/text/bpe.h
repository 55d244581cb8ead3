#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "text/flat_map.h"
#include "text/model.h"

namespace klotski {

struct BpeOptions {
  std::optional<TokenId> unknown;
  bool fuse_unknown = false;
  bool byte_fallback = false;
  bool whole_words_first = false;  // "ignore_merges": a piece that is a token needs no merging
  std::string continuing_prefix;   // before every character but a piece's first
  std::string end_suffix;          // after a piece's last character
  // SentencePiece writes one unknown token for a run of unknown characters after merging, and lets
  // characters that are no tokens themselves take part in merges.
  bool sentencepiece = false;
};

// Byte-pair encoding: joins the adjacent pair of least rank until no pair can be joined. A heap of
// candidate pairs makes it O(n log n) in the length of the piece.
class BpeModel : public TokenModel {
 public:
  struct Merge {
    uint32_t rank = 0;
    TokenId result = 0;
  };
  using MergeTable = FlatMap<Merge>;  // merges by pair_key()
  static uint64_t pair_key(TokenId left, TokenId right) {
    return (static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32) |
           static_cast<uint32_t>(right);
  }

  // Merges are the pairs of the table.
  BpeModel(const Vocabulary& vocabulary, MergeTable merges, BpeOptions options);
  // Any two neighbours whose text together is a token merge; ranks[id] orders the results.
  BpeModel(const Vocabulary& vocabulary, std::vector<uint32_t> ranks, BpeOptions options);

  void tokenize(std::string_view piece, std::vector<TokenId>& out) const override;
  size_t safe_cut(std::string_view text, size_t begin) const override;

 private:
  struct Symbol {
    TokenId id = -1;
    uint32_t begin = 0;  // begin of its text in the piece
    uint32_t bytes = 0;
    int32_t previous = -1;
    int32_t next = -1;
    uint32_t rank = UINT32_MAX;  // rank of the merge with `next`; UINT32_MAX: none
    TokenId merged = -1;         // result of that merge
  };
  using Symbols = std::vector<Symbol>;

  void index_characters();
  void index_neighbours();
  TokenId character_id(std::string_view character, bool first, bool last) const;
  Symbols split(std::string_view piece) const;
  void add_unknown(std::string_view character, uint32_t begin, Symbols& symbols,
                   Symbol& pending) const;
  bool add_byte_tokens(std::string_view text, std::vector<TokenId>& out) const;
  void find_merge(std::string_view piece, Symbols& symbols, int32_t left) const;
  void merge_all(std::string_view piece, Symbols& symbols) const;
  void emit_sentencepiece(std::string_view piece, const Symbols& symbols,
                          std::vector<TokenId>& out) const;

  const Vocabulary& vocabulary_;
  MergeTable merges_;
  std::vector<uint32_t> ranks_;  // empty: merges_ is in force
  BpeOptions options_;
  std::vector<TokenId> byte_tokens_;  // 256 with byte fallback, -1 where absent
  FlatMap<TokenId> character_ids_;    // ids by code point

  // Pairs of characters that may stand next to each other inside a token, as a Bloom filter: at any
  // other pair no merge can ever join the two sides, so text may be cut there.
  std::vector<uint64_t> neighbours_;
};

}  // namespace klotski
