#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "executor/compute_memory.h"
#include "executor/quietly.h"
#include "memory/arena.h"
#include "memory/pinning.h"

namespace klotski {

struct FloatRange {
  int64_t first;
  int64_t count;
};

// Memory of a device and as much host memory, pinned, with a queue of copies in each direction:
// floats that both exchange have one index in both. One thread at a time for each direction.
class SharedRows {
 public:
  // The memory must live longer.
  SharedRows(const ComputeMemory& memory, std::string_view kind, int64_t count,
             uint64_t bytes_each);
  // A single buffer. Where it lies on the device is said by lie_at() before anything is copied.
  SharedRows(const ComputeMemory& memory, std::string_view kind, uint64_t bytes);

  void lie_at(float* on_device) { lies_at_ = on_device; }
  float* on_device(int64_t index) const {
    return on_device_ ? floats(on_device_->buffer(index)) : lies_at_;
  }
  float* on_host(int64_t index) const { return floats(on_host_.buffer(index)); }

  // Copy floats of a buffer; they have arrived on return.
  void down(int64_t index, FloatRange range) {
    begin_down(index, range, [](CopyQueue&) {});
    finish_down();
  }
  void up(int64_t index, std::span<const FloatRange> ranges);

  // The way down in two parts. `wait` is called with the queue first, to let it wait for
  // operations.
  template <typename Wait>
  void begin_down(int64_t index, FloatRange range, const Wait& wait) {
    begin_or_finish(
        [&] {
          wait(*down_);
          copy_down(index, range);
        },
        [&] { down_->finish(); });
  }
  void finish_down() { down_->finish(); }

  // The way up in two parts. Copies happen once `count` has come to `least`; operations of the
  // device can wait for them (ProcessorMemory::wait_for_copies, way_up()) as soon as begin_up()
  // returns, whichever thread calls them.
  void begin_up(int64_t index, std::span<const FloatRange> ranges,
                const std::atomic<uint32_t>& count, uint32_t least);
  void finish_up() { up_->finish(); }
  const CopyQueue& way_up() const { return *up_; }

 private:
  SharedRows(const ComputeMemory& memory, std::string_view kind,
             std::optional<BufferPool> on_device, int64_t count, uint64_t bytes_each);
  void copy_down(int64_t index, FloatRange range);
  void copy_up(int64_t index, std::span<const FloatRange> ranges);

  static float* floats(std::span<std::byte> bytes) {
    return reinterpret_cast<float*>(bytes.data());
  }

  std::optional<BufferPool> on_device_;
  float* lies_at_ = nullptr;  // the buffer's place without a pool
  BufferPool on_host_;
  std::unique_ptr<CopyQueue> down_;
  std::unique_ptr<CopyQueue> up_;
  Pinning pinning_;  // last: it refers to the memory
};

}  // namespace klotski
