#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace klotski {

// Pages of one size in memory, within a number of bytes. They are made one by one as they are
// needed, and each begins at a multiple of kLineBytes.
class MemoryPages {
 public:
  static constexpr uint64_t kLineBytes = 64;  // a cache line
  static constexpr uint64_t whole_lines(uint64_t bytes) {
    return (bytes + kLineBytes - 1) / kLineBytes * kLineBytes;
  }

  // `page_bytes`: a multiple of kLineBytes; 0 makes no pages. `memory`: limit_bytes of a device's,
  // aligned to a line; null: the program's own.
  MemoryPages(uint64_t page_bytes, uint64_t limit_bytes, std::byte* memory)
      : page_bytes_(page_bytes),
        capacity_(page_bytes == 0 ? 0
                                  : static_cast<int64_t>(
                                        std::min<uint64_t>(limit_bytes / page_bytes, INT32_MAX))),
        memory_(memory) {}

  uint64_t page_bytes() const { return page_bytes_; }
  int64_t capacity() const { return capacity_; }
  int64_t in_use() const { return in_use_; }

  // Takes a free page; its number is less than capacity().
  int32_t take() {
    if (free_.empty()) {
      if (!memory_) storage_.push_back(std::make_unique<Line[]>(page_bytes_ / kLineBytes));
      free_.push_back(made_++);
    }
    const int32_t page = free_.back();
    free_.pop_back();
    ++in_use_;
    return page;
  }
  void give_back(int32_t page) {
    free_.push_back(page);
    --in_use_;
  }
  std::byte* at(int32_t page) const {
    const auto number = static_cast<size_t>(page);
    return memory_ ? memory_ + number * page_bytes_
                   : reinterpret_cast<std::byte*>(storage_[number].get());
  }

 private:
  struct alignas(kLineBytes) Line {
    std::byte bytes[kLineBytes];
  };

  uint64_t page_bytes_;
  int64_t capacity_;
  std::byte* memory_;
  std::vector<std::unique_ptr<Line[]>> storage_;
  int32_t made_ = 0;
  int64_t in_use_ = 0;
  std::vector<int32_t> free_;
};

}  // namespace klotski
