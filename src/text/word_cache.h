#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"

namespace klotski {

// The tokens of pieces seen before, for the length of one encode call: words repeat, and a look-up
// costs a tenth of the merging. Bounded: a full cache takes nothing more in, and a word that would
// stand far from its place is left out.
class WordCache {
 public:
  static constexpr size_t kMaxWordBytes = 64;
  static constexpr size_t kMaxWords = size_t{1} << 17;

  WordCache() : slots_(kInitialSlots) {}

  // False where the word is absent; else its tokens are appended to `out`.
  bool append(std::string_view word, uint64_t hash, std::vector<TokenId>& out) const;
  // The word must be absent.
  void insert(std::string_view word, uint64_t hash, std::span<const TokenId> ids);

 private:
  static constexpr size_t kInitialSlots = 1024;
  static constexpr size_t kMaxProbes = 16;
  struct Slot {
    uint64_t hash = 0;
    uint32_t word_begin = 0;
    uint32_t ids_begin = 0;
    uint16_t word_bytes = 0;  // 0: free
    uint16_t id_count = 0;
  };

  // False where no slot is free near the word's place.
  bool place(const Slot& slot);

  std::vector<Slot> slots_;
  std::string words_;
  std::vector<TokenId> ids_;
  size_t count_ = 0;
};

}  // namespace klotski
