#include "text/bpe.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <utility>

#include "base/error.h"
#include "text/utf8.h"

namespace klotski {

namespace {

constexpr size_t kNeighbourBits = size_t{1} << 20;

// Not keyed: whoever makes two pairs collide only loses places to cut.
size_t neighbour_bit(char32_t left, char32_t right) {
  const uint64_t mixed = ((uint64_t{left} << 32) | right) * 0x9E3779B97F4A7C15ull;
  return (mixed ^ (mixed >> 32)) % kNeighbourBits;
}

}  // namespace

BpeModel::BpeModel(const Vocabulary& vocabulary, MergeTable merges, BpeOptions options)
    : vocabulary_(vocabulary), merges_(std::move(merges)), options_(std::move(options)) {
  index_characters();
}

BpeModel::BpeModel(const Vocabulary& vocabulary, std::vector<uint32_t> ranks, BpeOptions options)
    : vocabulary_(vocabulary), ranks_(std::move(ranks)), options_(std::move(options)) {
  index_characters();
}

void BpeModel::index_characters() {
  for (size_t i = 0; i < vocabulary_.end_id(); ++i) {
    const auto id = static_cast<TokenId>(i);
    const std::string_view token = vocabulary_.text(id);
    if (token.empty() || token.size() != utf8_bytes(token[0])) continue;
    if (!ranks_.empty() && ranks_[i] == UINT32_MAX) continue;
    character_ids_[decode_utf8(token, 0).code] = id;
  }
  if (options_.byte_fallback) {
    for (int byte = 0; byte < 256; ++byte) {
      byte_tokens_.push_back(vocabulary_.byte_token(static_cast<unsigned char>(byte)).value_or(-1));
    }
  }
  const bool whole_piece_matters = options_.whole_words_first ||
                                   !options_.continuing_prefix.empty() ||
                                   !options_.end_suffix.empty();
  if (!whole_piece_matters) index_neighbours();
}

void BpeModel::index_neighbours() {
  neighbours_.assign(kNeighbourBits / 64, 0);
  for (size_t i = 0; i < vocabulary_.end_id(); ++i) {
    const std::string_view token = vocabulary_.text(static_cast<TokenId>(i));
    if (token.empty()) continue;
    char32_t left = decode_utf8(token, 0).code;
    for (size_t at = utf8_bytes(token[0]); at < token.size();) {
      const Utf8Char right = decode_utf8(token, at);
      const size_t bit = neighbour_bit(left, right.code);
      neighbours_[bit / 64] |= uint64_t{1} << (bit % 64);
      left = right.code;
      at += right.bytes;
    }
  }
}

size_t BpeModel::safe_cut(std::string_view text, size_t begin) const {
  if (neighbours_.empty() || begin >= text.size()) return text.size();
  Utf8Char left = decode_utf8(text, begin);
  for (size_t at = begin + left.bytes; at < text.size();) {
    const Utf8Char right = decode_utf8(text, at);
    const size_t bit = neighbour_bit(left.code, right.code);
    const bool apart = ((neighbours_[bit / 64] >> (bit % 64)) & 1) == 0;
    // Unknown characters may fuse with their neighbours, so both must be known.
    if (apart && character_ids_.find(left.code) && character_ids_.find(right.code)) return at;
    left = right;
    at += right.bytes;
  }
  return text.size();
}

TokenId BpeModel::character_id(std::string_view character, bool first, bool last) const {
  const bool prefixed = !first && !options_.continuing_prefix.empty();
  const bool suffixed = last && !options_.end_suffix.empty();
  if (!prefixed && !suffixed) {
    const TokenId* id = character_ids_.find(decode_utf8(character, 0).code);
    return id ? *id : -1;
  }
  std::string spelled = prefixed ? options_.continuing_prefix : "";
  spelled.append(character).append(suffixed ? options_.end_suffix : "");
  return vocabulary_.find(spelled).value_or(-1);
}

bool BpeModel::add_byte_tokens(std::string_view text, std::vector<TokenId>& out) const {
  if (byte_tokens_.empty()) return false;
  for (const char byte : text) {
    if (byte_tokens_[static_cast<unsigned char>(byte)] < 0) return false;
  }
  for (const char byte : text) out.push_back(byte_tokens_[static_cast<unsigned char>(byte)]);
  return true;
}

// `pending` is an unknown token that the next unknown character may still join.
void BpeModel::add_unknown(std::string_view character, uint32_t begin, Symbols& symbols,
                           Symbol& pending) const {
  std::vector<TokenId> bytes;
  if (add_byte_tokens(character, bytes)) {
    for (size_t i = 0; i < bytes.size(); ++i) {
      symbols.push_back({.id = bytes[i], .begin = begin + static_cast<uint32_t>(i), .bytes = 1});
    }
    return;
  }
  if (!options_.unknown) return;
  if (pending.id >= 0 && !options_.fuse_unknown) symbols.push_back(pending);
  pending = {.id = *options_.unknown, .begin = begin, .bytes = 1};
}

BpeModel::Symbols BpeModel::split(std::string_view piece) const {
  Symbols symbols;
  symbols.reserve(piece.size());
  Symbol pending;
  for (size_t at = 0; at < piece.size();) {
    const size_t bytes = utf8_bytes(piece[at]);
    const std::string_view character = piece.substr(at, bytes);
    const auto begin = static_cast<uint32_t>(at);
    const TokenId id = character_id(character, at == 0, at + bytes >= piece.size());
    at += bytes;
    if (id < 0 && !options_.sentencepiece) {
      add_unknown(character, begin, symbols, pending);
      continue;
    }
    if (pending.id >= 0) {
      symbols.push_back(pending);
      pending.id = -1;
    }
    symbols.push_back({.id = id, .begin = begin, .bytes = static_cast<uint32_t>(bytes)});
  }
  if (pending.id >= 0) symbols.push_back(pending);
  for (size_t i = 0; i < symbols.size(); ++i) {
    symbols[i].previous = static_cast<int32_t>(i) - 1;
    symbols[i].next = i + 1 < symbols.size() ? static_cast<int32_t>(i) + 1 : -1;
  }
  return symbols;
}

void BpeModel::find_merge(std::string_view piece, Symbols& symbols, int32_t left) const {
  Symbol& symbol = symbols[static_cast<size_t>(left)];
  symbol.rank = UINT32_MAX;
  if (symbol.next < 0) return;
  const Symbol& right = symbols[static_cast<size_t>(symbol.next)];
  if (ranks_.empty()) {
    const Merge* merge = merges_.find(pair_key(symbol.id, right.id));
    if (!merge) return;
    symbol.rank = merge->rank;
    symbol.merged = merge->result;
    return;
  }
  const auto id = vocabulary_.find(piece.substr(symbol.begin, symbol.bytes + right.bytes));
  if (!id) return;
  symbol.rank = ranks_[static_cast<size_t>(*id)];
  symbol.merged = *id;
}

void BpeModel::merge_all(std::string_view piece, Symbols& symbols) const {
  // Candidates for a merge, least rank first, then leftmost: rank in the upper half, index of the
  // left symbol in the lower.
  std::vector<uint64_t> candidates;
  const auto candidate = [&](size_t i) { return (uint64_t{symbols[i].rank} << 32) | i; };
  for (size_t i = 0; i < symbols.size(); ++i) {
    find_merge(piece, symbols, static_cast<int32_t>(i));
    if (symbols[i].rank != UINT32_MAX) candidates.push_back(candidate(i));
  }
  std::priority_queue<uint64_t, std::vector<uint64_t>, std::greater<>> heap(std::greater<>(),
                                                                            std::move(candidates));
  while (!heap.empty()) {
    const auto at = static_cast<size_t>(heap.top() & UINT32_MAX);
    const auto rank = static_cast<uint32_t>(heap.top() >> 32);
    heap.pop();
    Symbol& left = symbols[at];
    if (left.bytes == 0 || left.rank != rank) continue;  // changed since it was put in
    Symbol& right = symbols[static_cast<size_t>(left.next)];
    left.id = left.merged;
    left.bytes += right.bytes;
    left.next = right.next;
    right.bytes = 0;
    right.rank = UINT32_MAX;
    if (left.next >= 0) symbols[static_cast<size_t>(left.next)].previous = static_cast<int32_t>(at);
    find_merge(piece, symbols, static_cast<int32_t>(at));
    if (left.rank != UINT32_MAX) heap.push(candidate(at));
    if (left.previous < 0) continue;
    find_merge(piece, symbols, left.previous);
    const auto previous = static_cast<size_t>(left.previous);
    if (symbols[previous].rank != UINT32_MAX) heap.push(candidate(previous));
  }
}

void BpeModel::emit_sentencepiece(std::string_view piece, const Symbols& symbols,
                                  std::vector<TokenId>& out) const {
  bool previous_unknown = false;
  for (int32_t i = 0; i >= 0; i = symbols[static_cast<size_t>(i)].next) {
    const Symbol& symbol = symbols[static_cast<size_t>(i)];
    if (symbol.id >= 0) {
      out.push_back(symbol.id);
      previous_unknown = false;
      continue;
    }
    if (add_byte_tokens(piece.substr(symbol.begin, symbol.bytes), out)) continue;
    if (options_.unknown && !previous_unknown) out.push_back(*options_.unknown);
    previous_unknown = true;
  }
}

void BpeModel::tokenize(std::string_view piece, std::vector<TokenId>& out) const {
  if (options_.whole_words_first) {
    if (const auto id = vocabulary_.find(piece)) {
      out.push_back(*id);
      return;
    }
  }
  Symbols symbols = split(piece);
  if (symbols.empty()) return;
  merge_all(piece, symbols);
  if (options_.sentencepiece) return emit_sentencepiece(piece, symbols, out);
  for (int32_t i = 0; i >= 0; i = symbols[static_cast<size_t>(i)].next) {
    out.push_back(symbols[static_cast<size_t>(i)].id);
  }
}

}  // namespace klotski
