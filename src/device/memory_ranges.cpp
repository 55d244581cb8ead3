#include "device/memory_ranges.h"

#include <iterator>

namespace klotski {

void MemoryRanges::add(const std::byte* begin, uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  if (bytes_.emplace(begin, bytes).second) total_ += bytes;
}

uint64_t MemoryRanges::remove(const std::byte* begin) {
  const std::lock_guard lock(mutex_);
  const auto range = bytes_.find(begin);
  if (range == bytes_.end()) return 0;
  const uint64_t bytes = range->second;
  bytes_.erase(range);
  total_ -= bytes;
  return bytes;
}

bool MemoryRanges::hold(const std::byte* begin, uint64_t bytes) const {
  const std::lock_guard lock(mutex_);
  const auto after = bytes_.upper_bound(begin);
  if (after == bytes_.begin()) return false;
  const auto range = std::prev(after);
  const auto skipped = static_cast<uint64_t>(begin - range->first);
  return skipped <= range->second && bytes <= range->second - skipped;
}

uint64_t MemoryRanges::total() const {
  const std::lock_guard lock(mutex_);
  return total_;
}

}  // namespace klotski
