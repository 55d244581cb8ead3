#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "text/hash.h"

namespace klotski {

// Open addressing from 64-bit keys to small values: filled once, then read by many threads. The key
// of all ones is not allowed.
template <typename Value>
class FlatMap {
 public:
  FlatMap() { rehash(kLeastSlots); }

  const Value* find(uint64_t key) const {
    for (size_t at = key_.hash(key) & mask_;; at = (at + 1) & mask_) {
      if (slots_[at].key == key) return &slots_[at].value;
      if (slots_[at].key == kEmpty) return nullptr;
    }
  }

  // The value under the key, made first where it is absent.
  Value& operator[](uint64_t key) {
    if ((size_ + 1) * 2 > slots_.size()) rehash(slots_.size() * 2);
    Slot& slot = slot_of(key);
    if (slot.key == kEmpty) {
      slot.key = key;
      ++size_;
    }
    return slot.value;
  }

 private:
  static constexpr uint64_t kEmpty = ~0ull;
  static constexpr size_t kLeastSlots = 16;
  struct Slot {
    uint64_t key = kEmpty;
    Value value{};
  };

  Slot& slot_of(uint64_t key) {
    size_t at = key_.hash(key) & mask_;
    while (slots_[at].key != kEmpty && slots_[at].key != key) at = (at + 1) & mask_;
    return slots_[at];
  }

  void rehash(size_t capacity) {  // a power of two
    std::vector<Slot> old(capacity);
    old.swap(slots_);
    mask_ = capacity - 1;
    for (const Slot& slot : old) {
      if (slot.key != kEmpty) slot_of(slot.key) = slot;
    }
  }

  HashKey key_ = HashKey::of_process();
  std::vector<Slot> slots_;
  size_t mask_ = 0;
  size_t size_ = 0;
};

}  // namespace klotski
