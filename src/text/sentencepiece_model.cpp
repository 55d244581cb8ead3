#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>

#include "base/error.h"
#include "text/bpe.h"
#include "text/decode_steps.h"
#include "text/sentencepiece.h"
#include "text/tokenizer_parts.h"
#include "text/unigram.h"
#include "text/utf8.h"

namespace klotski {

namespace {

using Type = SentencePieceFile::Type;

std::optional<TokenId> unknown_token(const SentencePieceFile& file, const std::string& what) {
  std::optional<TokenId> unknown;
  for (size_t i = 0; i < file.pieces.size(); ++i) {
    if (file.pieces[i].type != Type::unknown) continue;
    if (unknown) fail(ErrorKind::bad_model, "{}: more than one unknown piece", what);
    unknown = static_cast<TokenId>(i);
  }
  if (!unknown) fail(ErrorKind::bad_model, "{}: no unknown piece", what);
  return unknown;
}

// The place of every piece in the order of falling scores; equal scores share a place. Pieces that
// text cannot become have none.
std::vector<uint32_t> merge_ranks(const SentencePieceFile& file, const std::string& what) {
  std::vector<float> scores;
  for (const auto& piece : file.pieces) {
    // A character of text stands for its piece before any merge, whatever the piece's type.
    const bool one_character =
        !piece.text.empty() && utf8_bytes(piece.text[0]) == piece.text.size();
    if (piece.type == Type::unused && (!file.unused_pads || one_character)) {
      fail(ErrorKind::bad_model, "{}: piece {} is unused, which is not supported for BPE{}", what,
           in_quotes(piece.text), file.unused_pads ? " where it is one character" : "");
    }
    scores.push_back(piece.score);
  }
  std::sort(scores.begin(), scores.end(), std::greater<>());
  scores.erase(std::unique(scores.begin(), scores.end()), scores.end());
  std::vector<uint32_t> ranks;
  for (const auto& piece : file.pieces) {
    const bool usable = piece.type == Type::normal || piece.type == Type::user_defined;
    const auto place =
        std::lower_bound(scores.begin(), scores.end(), piece.score, std::greater<>());
    ranks.push_back(usable ? static_cast<uint32_t>(place - scores.begin()) : UINT32_MAX);
  }
  return ranks;
}

std::unique_ptr<TokenModel> make_bpe(const SentencePieceFile& file, const std::string& what,
                                     TokenizerParts& parts) {
  BpeOptions options;
  options.unknown = unknown_token(file, what);
  options.byte_fallback = file.byte_fallback;
  options.sentencepiece = true;
  // User-defined symbols are never cut nor joined, just as added tokens are not.
  for (size_t i = 0; i < file.pieces.size(); ++i) {
    if (file.pieces[i].type != Type::user_defined) continue;
    AddedToken token;
    token.id = static_cast<TokenId>(i);
    token.content = file.pieces[i].text;
    token.normalized = true;
    parts.added.add(std::move(token), parts.vocabulary, what);
  }
  return std::make_unique<BpeModel>(parts.vocabulary, merge_ranks(file, what), options);
}

std::unique_ptr<TokenModel> make_unigram(const SentencePieceFile& file, const std::string& what,
                                         const Vocabulary& vocabulary) {
  UnigramOptions options;
  options.unknown = unknown_token(file, what);
  options.byte_fallback = file.byte_fallback;
  options.single_precision = true;
  std::vector<UnigramPiece> pieces;
  for (size_t i = 0; i < file.pieces.size(); ++i) {
    const auto& piece = file.pieces[i];
    if (piece.type != Type::normal && piece.type != Type::user_defined) continue;
    pieces.push_back({static_cast<TokenId>(i), piece.score, piece.type == Type::user_defined});
  }
  return std::make_unique<UnigramModel>(vocabulary, std::move(pieces), options);
}

}  // namespace

void add_sentencepieces(const SentencePieceFile& file, const std::string& what,
                        TokenizerParts& parts) {
  for (size_t i = 0; i < file.pieces.size(); ++i) {
    const auto& piece = file.pieces[i];
    if (piece.type == Type::byte && byte_of_token(piece.text) < 0) {
      fail(ErrorKind::bad_model, "{}: piece {}: expected a byte such as <0x0A>, found {}", what, i,
           in_quotes(piece.text));
    }
    parts.vocabulary.add(piece.text, static_cast<int64_t>(i), what);
    if (piece.type == Type::control || piece.type == Type::unknown) {
      parts.control.insert(static_cast<TokenId>(i));
    }
  }
  const bool bpe = file.model_type == SentencePieceFile::ModelType::bpe;
  parts.model = bpe ? make_bpe(file, what, parts) : make_unigram(file, what, parts.vocabulary);
  parts.normalizer = make_sentencepiece_normalizer(file, what);
}

std::shared_ptr<const TokenizerParts> parse_sentencepiece(std::string_view bytes,
                                                          const std::string& what) {
  const SentencePieceFile file = read_sentencepiece(bytes, what);
  auto parts = std::make_shared<TokenizerParts>();
  add_sentencepieces(file, what, *parts);
  parts->added.build(nullptr, what);
  parts->decoder = make_sentencepiece_decoder(file, parts->vocabulary);
  const bool has_bos = file.bos_id >= 0 && static_cast<size_t>(file.bos_id) < file.pieces.size() &&
                       file.pieces[static_cast<size_t>(file.bos_id)].type == Type::control;
  if (has_bos) parts->post_processor.before = {file.bos_id};
  return parts;
}

}  // namespace klotski
