#include "text/vocabulary.h"

#include <algorithm>

#include "base/error.h"

namespace klotski {

void Vocabulary::add(std::string_view token, int64_t id, std::string_view what) {
  if (id < 0 || id >= kMaxTokenIds) {
    fail(ErrorKind::bad_model, "{}: token {}: expected an id from 0 to {}, found {}", what,
         in_quotes(token), kMaxTokenIds - 1, id);
  }
  const auto token_id = static_cast<TokenId>(id);
  if (has(token_id)) {
    fail(ErrorKind::bad_model, "{}: id {} is given to both {} and {}", what, id,
         in_quotes(text(token_id)), in_quotes(token));
  }
  if (find(token)) {
    fail(ErrorKind::bad_model, "{}: token {} appears twice, with ids {} and {}", what,
         in_quotes(token), *find(token), id);
  }
  const auto slot = static_cast<size_t>(id);
  if (slot >= entries_.size()) entries_.resize(slot + 1);
  entries_[slot] = {texts_.size(), static_cast<uint32_t>(token.size()), true};
  texts_.append(token);
  longest_bytes_ = std::max(longest_bytes_, token.size());
  ++size_;
  if (size_ * 2 > index_.size()) {
    grow_index();
  } else {
    place(token_id);
  }
}

void Vocabulary::place(TokenId id) {
  const size_t mask = index_.size() - 1;
  size_t at = key_.hash(text(id)) & mask;
  while (index_[at] >= 0) at = (at + 1) & mask;
  index_[at] = id;
}

void Vocabulary::grow_index() {
  index_.assign(index_.empty() ? 1024 : index_.size() * 2, -1);
  for (size_t id = 0; id < entries_.size(); ++id) {
    if (entries_[id].used) place(static_cast<TokenId>(id));
  }
}

std::optional<TokenId> Vocabulary::find(std::string_view token) const {
  if (index_.empty() || token.size() > longest_bytes_) return std::nullopt;
  const size_t mask = index_.size() - 1;
  for (size_t at = key_.hash(token) & mask; index_[at] >= 0; at = (at + 1) & mask) {
    if (text(index_[at]) == token) return index_[at];
  }
  return std::nullopt;
}

bool Vocabulary::has(TokenId id) const {
  return id >= 0 && static_cast<size_t>(id) < entries_.size() &&
         entries_[static_cast<size_t>(id)].used;
}

std::string_view Vocabulary::text(TokenId id) const {
  if (!has(id)) return {};
  const Entry& entry = entries_[static_cast<size_t>(id)];
  return std::string_view(texts_).substr(entry.begin, entry.bytes);
}

std::optional<TokenId> Vocabulary::byte_token(unsigned char byte) const {
  return find(fmt::format("<0x{:02X}>", byte));
}

}  // namespace klotski
