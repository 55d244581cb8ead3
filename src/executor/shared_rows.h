#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "executor/compute_memory.h"
#include "memory/arena.h"
#include "memory/pinning.h"

namespace klotski {

struct FloatRange {
  int64_t first;
  int64_t count;
};

// Memory of a device and as much of the program's, pinned, with a queue of copies in each
// direction: floats that both exchange have the same place in each. One thread at a time for each
// direction.
class SharedRows {
 public:
  // The memory must live longer.
  SharedRows(const ComputeMemory& memory, std::string_view kind, int64_t count,
             uint64_t bytes_each);

  float* on_device(int64_t index) const { return floats(on_device_.buffer(index)); }
  float* below(int64_t index) const { return floats(below_.buffer(index)); }

  // Copy floats of a buffer; what is copied has arrived on return.
  void down(int64_t index, FloatRange range);
  void up(int64_t index, std::span<const FloatRange> ranges);

 private:
  static float* floats(std::span<std::byte> bytes) {
    return reinterpret_cast<float*>(bytes.data());
  }

  BufferPool on_device_;
  BufferPool below_;
  std::unique_ptr<CopyQueue> down_;
  std::unique_ptr<CopyQueue> up_;
  Pinning pinning_;  // last: it refers to the memory
};

}  // namespace klotski
