#pragma once

// A device for tests on machines without one.

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/error.h"
#include "device/device.h"
#include "device/memory_ranges.h"

namespace klotski::testing {

struct HostDeviceLimits {
  uint64_t bytes = kGiB;            // bytes of its memory, own_bytes included
  uint64_t own_bytes = 0;           // bytes that its driver pretends to take
  uint64_t pin_bytes = UINT64_MAX;  // most bytes of the program's memory that may be pinned
};

// A device whose memory is the program's, so that operations of the processor work in it. Copies
// happen in finish() alone and are lost with a queue that never finished, so a missing finish()
// shows as wrong bytes. A copy whose device side lies in no allocation is refused. Any thread may
// use it, one thread a queue.
class HostDevice final : public Device {
 public:
  explicit HostDevice(const HostDeviceLimits& limits = {}) : limits_(limits) {
    info_.name = "host memory";
    info_.total_bytes = limits.bytes;
  }
  HostDevice(const HostDevice&) = delete;
  HostDevice& operator=(const HostDevice&) = delete;

  // The k-th copy from now on (0 the next) throws device_lost, and everything after it does; -1:
  // none does, and the device works again.
  void fail_copy(int k) {
    lost_ = false;
    copies_left_ = k;
  }

  // The k-th copy from now on (0 the next) does not come back before let_go().
  void hang_at_copy(int k) {
    hung_ = true;
    copies_before_hanging_ = k;
  }
  void let_go() {
    hung_ = false;
    hung_.notify_all();
  }

  // Pretends that its driver takes `bytes` more for itself.
  void take_own(uint64_t bytes) { limits_.own_bytes += bytes; }

  // Done since the beginning.
  uint64_t bytes_to_device() const { return bytes_to_device_; }
  uint64_t bytes_to_host() const { return bytes_to_host_; }

  uint64_t allocated_bytes() const { return allocated_.total(); }
  uint64_t pinned_bytes() const { return pinned_.total(); }
  bool pinned(const std::byte* memory, uint64_t bytes) const { return pinned_.hold(memory, bytes); }
  void check_allocated(const std::byte* memory, uint64_t bytes) const {
    if (!allocated_.hold(memory, bytes)) {
      fail(ErrorKind::internal, "a copy of {} bytes in device memory that was not allocated",
           bytes);
    }
  }

  const DeviceInfo& info() const override { return info_; }
  uint64_t own_bytes() const override { return limits_.own_bytes; }
  uint64_t free_bytes() const override {
    const uint64_t used = limits_.own_bytes + allocated_.total();
    return limits_.bytes - std::min(limits_.bytes, used);
  }

  std::byte* allocate(uint64_t bytes) override {
    check();
    if (bytes == 0) return nullptr;
    const std::lock_guard lock(mutex_);
    if (bytes > free_bytes()) {
      fail(ErrorKind::does_not_fit, "device memory: expected at most {} more, found {}",
           format_bytes(free_bytes()), format_bytes(bytes));
    }
    Memory memory(static_cast<std::byte*>(::operator new(bytes, kAlignment)));
    std::byte* at = memory.get();
    std::memset(at, kUnwritten, bytes);
    memory_.emplace(at, std::move(memory));
    allocated_.add(at, bytes);
    return at;
  }
  void release(std::byte* memory) noexcept override {
    const std::lock_guard lock(mutex_);
    allocated_.remove(memory);
    memory_.erase(memory);
  }

  bool pin(std::span<std::byte> memory) override {
    check();
    const std::lock_guard lock(mutex_);
    if (memory.empty() || pinned_.hold(memory.data(), memory.size())) return true;
    if (memory.size() > limits_.pin_bytes - std::min(limits_.pin_bytes, pinned_.total())) {
      return false;
    }
    pinned_.add(memory.data(), memory.size());
    return true;
  }
  void unpin(std::span<std::byte> memory) noexcept override { pinned_.remove(memory.data()); }

  std::unique_ptr<CopyQueue> new_queue(CopySize) override {
    check();
    return std::make_unique<Queue>(*this);
  }

 private:
  static constexpr std::align_val_t kAlignment{256};  // like a device's
  static constexpr int kUnwritten = 0xFF;             // no number in any float type
  struct Delete {
    void operator()(std::byte* memory) const { ::operator delete(memory, kAlignment); }
  };
  using Memory = std::unique_ptr<std::byte, Delete>;

  struct Copy {
    std::byte* to = nullptr;
    const std::byte* from = nullptr;
    uint64_t row_bytes = 0;
    uint64_t rows = 1;
    uint64_t from_stride = 0;
    bool to_device = false;
    std::vector<std::byte> taken;  // memory that is not pinned, as it was when asked

    uint64_t bytes() const { return rows * row_bytes; }
    void pack(std::byte* packed) const {
      for (uint64_t row = 0; row < rows; ++row) {
        std::memcpy(packed + row * row_bytes, from + row * from_stride, row_bytes);
      }
    }
  };

  class Queue final : public CopyQueue {
   public:
    explicit Queue(HostDevice& device) : device_(device) {}

    void to_device(std::byte* to, const std::byte* from, uint64_t bytes) override {
      rows_to_device(to, from, bytes, 1, bytes);
    }
    void rows_to_device(std::byte* to, const std::byte* from, uint64_t row_bytes, uint64_t rows,
                        uint64_t from_stride) override {
      device_.count_copy();
      if (row_bytes == 0 || rows == 0) return;
      if (from_stride < row_bytes) fail(ErrorKind::internal, "a copy of rows that overlap");
      Copy copy{to, from, row_bytes, rows, from_stride, true, {}};
      if (!device_.pinned_.hold(from, (rows - 1) * from_stride + row_bytes)) {
        copy.taken.resize(copy.bytes());
        copy.pack(copy.taken.data());
        copy.from = copy.taken.data();
        copy.from_stride = row_bytes;
      }
      device_.check_inside(copy);
      copies_.push_back(std::move(copy));
    }
    void to_host(std::byte* to, const std::byte* from, uint64_t bytes) override {
      device_.count_copy();
      if (bytes == 0) return;
      copies_.push_back({to, from, bytes, 1, bytes, false, {}});
      device_.check_inside(copies_.back());
    }
    void finish() override {
      published();
      const std::vector<Copy> copies = std::exchange(copies_, {});
      device_.check();
      for (const Copy& copy : copies) device_.carry_out(copy);
    }
    void wait_for_count(const std::atomic<uint32_t>& count, uint32_t least) override {
      while (!has_come_to(count, least)) std::this_thread::yield();
    }
    void wait_for_mark(void*) override {}  // operations are over when their calls return
    void publish() override {
      const std::lock_guard lock(mutex_);
      for (Copy& copy : std::exchange(copies_, {})) published_.push_back(std::move(copy));
    }
    // Makes the published copies, since whoever waits for them asks for this: operations that
    // forget to wait find nothing. A lost device makes none, then or later.
    void* published() const override {
      const std::lock_guard lock(mutex_);
      for (const Copy& copy : std::exchange(published_, {})) {
        if (!device_.lost_) device_.carry_out(copy);
      }
      return nullptr;
    }

   private:
    HostDevice& device_;
    std::vector<Copy> copies_;
    mutable std::mutex mutex_;  // guards published_, which other threads may wait for
    mutable std::vector<Copy> published_;
  };

  void check() const {
    if (lost_) fail(ErrorKind::device_lost, "the device failed, as a test asked");
  }
  void count_copy() {
    check();
    if (copies_before_hanging_ >= 0 && copies_before_hanging_.fetch_sub(1) == 0) hung_.wait(true);
    if (copies_left_ < 0 || copies_left_.fetch_sub(1) != 0) return;
    lost_ = true;
    check();
  }
  void check_inside(const Copy& copy) const {
    check_allocated(copy.to_device ? copy.to : copy.from, copy.bytes());
  }
  void carry_out(const Copy& copy) {
    check_inside(copy);  // the memory may have been released meanwhile
    copy.pack(copy.to);
    (copy.to_device ? bytes_to_device_ : bytes_to_host_) += copy.bytes();
  }

  HostDeviceLimits limits_;
  DeviceInfo info_;
  std::mutex mutex_;  // guards the next three, where two are changed together
  std::map<std::byte*, Memory> memory_;
  MemoryRanges allocated_;
  MemoryRanges pinned_;
  std::atomic<uint64_t> bytes_to_device_{0};
  std::atomic<uint64_t> bytes_to_host_{0};
  std::atomic<int> copies_left_{-1};  // copies before the one that fails; negative: none fails
  std::atomic<bool> lost_{false};
  std::atomic<int> copies_before_hanging_{-1};  // negative: none hangs
  std::atomic<bool> hung_{false};
};

}  // namespace klotski::testing
