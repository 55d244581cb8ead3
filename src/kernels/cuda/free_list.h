#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <utility>

namespace klotski::cuda {

// Hands out pieces of an arena whose bytes it never touches: the first of the smallest free pieces
// that are large enough. Neighbouring free pieces are one.
class FreeList {
 public:
  static constexpr uint64_t kAlignment = 256;

  explicit FreeList(std::span<std::byte> arena);

  // A piece of memory; a piece of no bytes takes none. Throws does_not_fit.
  std::byte* take(uint64_t bytes);
  void give_back(std::byte* memory, uint64_t bytes);

  bool holds(const std::byte* memory) const { return memory >= begin_ && memory < begin_ + size_; }
  uint64_t bytes() const { return size_; }
  uint64_t free_bytes() const { return free_bytes_; }
  uint64_t largest_piece() const { return by_size_.empty() ? 0 : by_size_.rbegin()->first; }

 private:
  using Pieces = std::map<uint64_t, uint64_t>;  // offset -> bytes

  void add(uint64_t offset, uint64_t bytes);
  Pieces::iterator remove(Pieces::iterator piece);

  std::byte* begin_;  // aligned
  uint64_t size_ = 0;
  uint64_t free_bytes_ = 0;
  Pieces by_offset_;
  std::set<std::pair<uint64_t, uint64_t>> by_size_;  // (bytes, offset)
};

// An arena, and memory that is lent for a while: pieces come from there as far as it goes.
class WorkingMemory {
 public:
  explicit WorkingMemory(std::span<std::byte> arena) : own_(arena) {}

  std::byte* take(uint64_t bytes);
  void give_back(std::byte* memory, uint64_t bytes);
  // Replaces the memory that was lent before, all pieces of which have been given back.
  void lend(std::span<std::byte> memory);

 private:
  FreeList own_;
  std::optional<FreeList> lent_;
};

}  // namespace klotski::cuda
