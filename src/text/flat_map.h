#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace klotski {

inline uint64_t mix_bits(uint64_t key) {
  key *= 0x9E3779B97F4A7C15ull;
  return key ^ (key >> 32);
}

// Open addressing from 64-bit keys to small values: filled once, then read by many threads. The key
// of all ones is not allowed.
template <typename Value>
class FlatMap {
 public:
  explicit FlatMap(size_t expected = 0) { rehash(expected * 2); }

  size_t size() const { return size_; }

  const Value* find(uint64_t key) const {
    for (size_t at = mix_bits(key) & mask_;; at = (at + 1) & mask_) {
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
  struct Slot {
    uint64_t key = kEmpty;
    Value value{};
  };

  Slot& slot_of(uint64_t key) {
    size_t at = mix_bits(key) & mask_;
    while (slots_[at].key != kEmpty && slots_[at].key != key) at = (at + 1) & mask_;
    return slots_[at];
  }

  void rehash(size_t least) {
    size_t capacity = 16;
    while (capacity < least) capacity *= 2;
    std::vector<Slot> old(capacity);
    old.swap(slots_);
    mask_ = capacity - 1;
    for (const Slot& slot : old) {
      if (slot.key != kEmpty) slot_of(slot.key) = slot;
    }
  }

  std::vector<Slot> slots_;
  size_t mask_ = 0;
  size_t size_ = 0;
};

}  // namespace klotski
