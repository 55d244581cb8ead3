#include "text/word_cache.h"

namespace klotski {

bool WordCache::append(std::string_view word, uint64_t hash, std::vector<TokenId>& out) const {
  const size_t mask = slots_.size() - 1;
  for (size_t probe = 0; probe < kMaxProbes; ++probe) {
    const Slot& slot = slots_[(hash + probe) & mask];
    if (slot.word_bytes == 0) return false;
    if (slot.hash != hash || words_.compare(slot.word_begin, slot.word_bytes, word) != 0) continue;
    const auto begin = ids_.begin() + static_cast<std::ptrdiff_t>(slot.ids_begin);
    out.insert(out.end(), begin, begin + slot.id_count);
    return true;
  }
  return false;
}

void WordCache::insert(std::string_view word, uint64_t hash, std::span<const TokenId> ids) {
  if (word.empty() || word.size() > kMaxWordBytes || count_ >= kMaxWords) return;
  if (ids.size() > UINT16_MAX) return;
  if ((count_ + 1) * 2 > slots_.size()) {
    std::vector<Slot> old(slots_.size() * 2);
    old.swap(slots_);
    for (const Slot& slot : old) {
      if (slot.word_bytes != 0) place(slot);
    }
  }
  const bool placed =
      place({hash, static_cast<uint32_t>(words_.size()), static_cast<uint32_t>(ids_.size()),
             static_cast<uint16_t>(word.size()), static_cast<uint16_t>(ids.size())});
  if (!placed) return;
  ++count_;
  words_.append(word);
  ids_.insert(ids_.end(), ids.begin(), ids.end());
}

bool WordCache::place(const Slot& slot) {
  const size_t mask = slots_.size() - 1;
  for (size_t probe = 0; probe < kMaxProbes; ++probe) {
    Slot& place = slots_[(slot.hash + probe) & mask];
    if (place.word_bytes != 0) continue;
    place = slot;
    return true;
  }
  return false;
}

}  // namespace klotski
