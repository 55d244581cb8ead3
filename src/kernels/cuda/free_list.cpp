#include "kernels/cuda/free_list.h"

#include <iterator>

#include "base/bytes.h"
#include "base/error.h"

namespace klotski::cuda {

namespace {

uint64_t aligned_up(uint64_t value) {
  return (value + FreeList::kAlignment - 1) / FreeList::kAlignment * FreeList::kAlignment;
}

}  // namespace

FreeList::FreeList(std::span<std::byte> arena) {
  const auto address = reinterpret_cast<uintptr_t>(arena.data());
  const uint64_t skipped = aligned_up(address) - address;
  begin_ = arena.data() + skipped;
  if (arena.size() > skipped) size_ = (arena.size() - skipped) / kAlignment * kAlignment;
  if (size_ > 0) add(0, size_);
}

void FreeList::add(uint64_t offset, uint64_t bytes) {
  by_offset_.emplace(offset, bytes);
  by_size_.emplace(bytes, offset);
  free_bytes_ += bytes;
}

FreeList::Pieces::iterator FreeList::remove(Pieces::iterator piece) {
  by_size_.erase({piece->second, piece->first});
  free_bytes_ -= piece->second;
  return by_offset_.erase(piece);
}

std::byte* FreeList::take(uint64_t bytes) {
  if (bytes == 0) return begin_;
  const auto found = bytes > size_ ? by_size_.end() : by_size_.lower_bound({aligned_up(bytes), 0});
  if (found == by_size_.end()) {
    fail(ErrorKind::does_not_fit,
         "the device's working memory of {} has no piece of {}: {} are free, {} of them in one "
         "piece",
         format_bytes(size_), format_bytes(bytes), format_bytes(free_bytes_),
         format_bytes(largest_piece()));
  }
  const auto [size, offset] = *found;
  remove(by_offset_.find(offset));
  if (const uint64_t taken = aligned_up(bytes); size > taken) add(offset + taken, size - taken);
  return begin_ + offset;
}

void FreeList::give_back(std::byte* memory, uint64_t bytes) {
  if (bytes == 0) return;
  auto offset = static_cast<uint64_t>(memory - begin_);
  uint64_t size = aligned_up(bytes);
  auto next = by_offset_.lower_bound(offset);
  const bool meets_next = next != by_offset_.end() && next->first < offset + size;
  const auto before = next == by_offset_.begin() ? by_offset_.end() : std::prev(next);
  const bool has_before = before != by_offset_.end();
  const bool meets_before = has_before && before->first + before->second > offset;
  if (memory < begin_ || offset + size > size_ || meets_next || meets_before) {
    fail(ErrorKind::internal, "{} of the device's working memory were given back twice",
         format_bytes(bytes));
  }
  if (next != by_offset_.end() && next->first == offset + size) {
    size += next->second;
    remove(next);
  }
  if (has_before && before->first + before->second == offset) {
    offset = before->first;
    size += before->second;
    remove(before);
  }
  add(offset, size);
}

std::byte* WorkingMemory::take(uint64_t bytes) {
  const bool fits = lent_ && aligned_up(bytes) <= lent_->largest_piece();
  return fits ? lent_->take(bytes) : own_.take(bytes);
}

void WorkingMemory::give_back(std::byte* memory, uint64_t bytes) {
  (lent_ && lent_->holds(memory) ? *lent_ : own_).give_back(memory, bytes);
}

void WorkingMemory::lend(std::span<std::byte> memory) {
  if (lent_ && lent_->free_bytes() < lent_->bytes()) {
    fail(ErrorKind::internal, "{} of the memory lent to a device's operations are still in use",
         format_bytes(lent_->bytes() - lent_->free_bytes()));
  }
  lent_.reset();
  if (!memory.empty()) lent_.emplace(memory);
}

}  // namespace klotski::cuda
