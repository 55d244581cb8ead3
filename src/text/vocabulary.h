#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "text/hash.h"

namespace klotski {

// One more than the largest token id that any file may name.
inline constexpr int64_t kMaxTokenIds = int64_t{1} << 24;

// Token texts by id and ids by text. Ids may have gaps.
class Vocabulary {
 public:
  // Throws where the id is out of range or taken, or the text is present already; `what` names the
  // file and field.
  void add(std::string_view token, int64_t id, std::string_view what);

  std::optional<TokenId> find(std::string_view token) const;
  bool has(TokenId id) const;
  std::string_view text(TokenId id) const;  // empty where the id is not used

  size_t size() const { return size_; }              // tokens
  size_t end_id() const { return entries_.size(); }  // largest id + 1

  // The token of one raw byte under byte fallback, written "<0xE2>".
  std::optional<TokenId> byte_token(unsigned char byte) const;

 private:
  struct Entry {
    uint64_t begin = 0;
    uint32_t bytes = 0;
    bool used = false;
  };

  void grow_index();
  void place(TokenId id);

  HashKey key_ = HashKey::of_process();
  std::string texts_;
  std::vector<Entry> entries_;
  std::vector<TokenId> index_;  // open addressing; -1 where free
  size_t size_ = 0;
  size_t longest_bytes_ = 0;
};

}  // namespace klotski
