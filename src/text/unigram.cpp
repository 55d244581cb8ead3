#include "text/unigram.h"

#include <algorithm>

#include "base/error.h"
#include "text/utf8.h"

namespace klotski {

UnigramModel::UnigramModel(const Vocabulary& vocabulary, std::vector<UnigramPiece> pieces,
                           UnigramOptions options)
    : vocabulary_(vocabulary), pieces_(std::move(pieces)), options_(options) {
  bool first = true;
  for (size_t i = 0; i < pieces_.size(); ++i) {
    trie_.insert(vocabulary_.text(pieces_[i].id), static_cast<int32_t>(i));
    if (pieces_[i].user_defined) continue;
    least_score_ = first ? pieces_[i].score : std::min(least_score_, pieces_[i].score);
    greatest_score_ = first ? pieces_[i].score : std::max(greatest_score_, pieces_[i].score);
    first = false;
  }
}

void UnigramModel::reach(std::vector<Node>& nodes, size_t end, const Node& candidate) const {
  Node& node = nodes[end];
  if (node.reached && candidate.score <= node.score) return;
  node = candidate;
  // SentencePiece up to 0.1.99 compares in double precision and stores in single; 0.2 compares in
  // single precision, which decides a few exact ties the other way.
  if (options_.single_precision) node.score = static_cast<float>(node.score);
}

std::vector<UnigramModel::Node> UnigramModel::best_paths(std::string_view piece) const {
  constexpr double kUnknownPenalty = 10;
  const double unknown_score = options_.single_precision
                                   ? static_cast<float>(least_score_ - kUnknownPenalty)
                                   : least_score_ - kUnknownPenalty;
  std::vector<Node> nodes(piece.size() + 1);
  for (size_t at = 0; at < piece.size();) {
    const size_t character_end = std::min(at + utf8_bytes(piece[at]), piece.size());
    const double score_here = nodes[at].score;
    const auto begin = static_cast<uint32_t>(at);
    bool character_known = false;
    int32_t node = 0;
    for (size_t end = at; end < piece.size();) {
      node = trie_.step(node, piece[end++]);
      if (node < 0) break;
      if (trie_.value(node) < 0) continue;
      const UnigramPiece& token = pieces_[static_cast<size_t>(trie_.value(node))];
      const double score =
          token.user_defined ? static_cast<double>(end - at) * greatest_score_ - 0.1 : token.score;
      // Text that spells the unknown token joins a run of unknown characters.
      const TokenId id = options_.unknown == token.id ? -1 : token.id;
      reach(nodes, end, {score + score_here, begin, id, true});
      character_known |= end == character_end;
    }
    if (!character_known) {
      reach(nodes, character_end, {unknown_score + score_here, begin, -1, true});
    }
    at = character_end;
  }
  return nodes;
}

void UnigramModel::emit_unknown(std::string_view run, std::vector<TokenId>& out) const {
  if (const auto id = options_.single_precision ? std::nullopt : vocabulary_.find(run)) {
    out.push_back(*id);
    return;
  }
  if (options_.byte_fallback) {
    std::vector<TokenId> bytes;
    for (const char byte : run) {
      if (const auto id = vocabulary_.byte_token(static_cast<unsigned char>(byte))) {
        bytes.push_back(*id);
      }
    }
    if (bytes.size() == run.size()) {
      out.insert(out.end(), bytes.begin(), bytes.end());
      return;
    }
  }
  if (!options_.unknown) {
    fail(ErrorKind::bad_model, "the Unigram model has no unknown token, which the text {} needs",
         in_quotes(run));
  }
  out.push_back(*options_.unknown);
}

void UnigramModel::tokenize(std::string_view piece, std::vector<TokenId>& out) const {
  const std::vector<Node> nodes = best_paths(piece);
  std::vector<uint32_t> ends;
  for (size_t end = piece.size(); end > 0; end = nodes[end].begin) {
    ends.push_back(static_cast<uint32_t>(end));
  }
  std::reverse(ends.begin(), ends.end());
  for (size_t i = 0; i < ends.size(); ++i) {
    const Node& node = nodes[ends[i]];
    if (node.id >= 0) {
      out.push_back(node.id);
      continue;
    }
    while (i + 1 < ends.size() && nodes[ends[i + 1]].id < 0) ++i;
    emit_unknown(piece.substr(node.begin, ends[i] - node.begin), out);
  }
}

}  // namespace klotski
