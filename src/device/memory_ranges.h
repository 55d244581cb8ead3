#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>

namespace klotski {

// Ranges of memory that do not overlap, each as it was added: neighbours stay two, since a driver
// refuses a copy that reaches from one into the next. Any thread.
class MemoryRanges {
 public:
  void add(const std::byte* begin, uint64_t bytes);
  // Removes the range that begins here and returns its bytes; 0 where none does.
  uint64_t remove(const std::byte* begin);
  // Whether all of these bytes lie in one range.
  bool hold(const std::byte* begin, uint64_t bytes) const;
  uint64_t total() const;

 private:
  mutable std::mutex mutex_;
  std::map<const std::byte*, uint64_t> bytes_;  // bytes by beginning of a range
  uint64_t total_ = 0;
};

}  // namespace klotski
