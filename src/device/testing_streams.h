#pragma once

// A device for tests that works beside the program, as one with streams does: whatever it is asked
// for happens at any later time that the declared order allows.

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "device/testing.h"

namespace klotski::testing {

// Something that happens once, and that any thread may wait for.
class Event {
 public:
  void happen() {
    happened_ = true;
    happened_.notify_all();
  }
  void wait() const { happened_.wait(false); }

 private:
  std::atomic<bool> happened_{false};
};

// Work that a thread of its own does piece by piece, in order, with random delays: most pieces at
// once, some when the program has long gone on.
class Stream {
 public:
  explicit Stream(uint64_t seed) : random_(seed), thread_([this] { work(); }) {}
  ~Stream() {  // after all its work
    add_quietly(nullptr);
    thread_.join();
  }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  void add(std::function<void()> piece) { add_quietly(std::move(piece)); }
  // Lets the event happen after all work so far.
  void record(Event& event) {
    add([&event] { event.happen(); });
  }
  // Returns after all work so far; throws the first error of it.
  void finish() {
    Event over;
    record(over);
    over.wait();
    throw_if_failed();
  }
  void throw_if_failed() {
    const std::lock_guard lock(mutex_);
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  }

 private:
  void add_quietly(std::function<void()> piece) {
    const std::lock_guard lock(mutex_);
    pieces_.push_back(std::move(piece));
    there_.notify_one();
  }

  void work() {
    for (;;) {
      std::unique_lock lock(mutex_);
      there_.wait(lock, [this] { return !pieces_.empty(); });
      const std::function<void()> next = std::move(pieces_.front());
      pieces_.pop_front();
      lock.unlock();
      if (!next) return;
      delay();
      try {
        next();
      } catch (...) {
        lock.lock();
        if (!error_) error_ = std::current_exception();
      }
    }
  }

  void delay() {
    const uint64_t drawn = random_() % 512;
    if (drawn < 8) std::this_thread::yield();
    if (drawn == 8) std::this_thread::sleep_for(std::chrono::microseconds(random_() % 1000));
  }

  std::mt19937_64 random_;
  std::mutex mutex_;  // guards the two that follow
  std::deque<std::function<void()>> pieces_;
  std::exception_ptr error_;
  std::condition_variable there_;
  std::thread thread_;
};

// A device over the memory of a HostDevice whose queues are streams.
class StreamDevice final : public Device {
 public:
  // The memory must live longer.
  StreamDevice(HostDevice& memory, uint64_t seed) : memory_(memory), seed_(seed) {}

  // A stream of this device.
  std::unique_ptr<Stream> new_stream() { return std::make_unique<Stream>(++seed_); }
  // An event that lives as long as the device.
  Event& new_event() {
    const std::lock_guard lock(mutex_);
    return events_.emplace_back();
  }

  const DeviceInfo& info() const override { return memory_.info(); }
  uint64_t own_bytes() const override { return memory_.own_bytes(); }
  uint64_t free_bytes() const override { return memory_.free_bytes(); }
  std::byte* allocate(uint64_t bytes) override { return memory_.allocate(bytes); }
  void release(std::byte* memory) noexcept override { memory_.release(memory); }
  bool pin(std::span<std::byte> memory) override { return memory_.pin(memory); }
  void unpin(std::span<std::byte> memory) noexcept override { memory_.unpin(memory); }
  std::unique_ptr<CopyQueue> new_queue(CopySize) override { return std::make_unique<Queue>(*this); }

 private:
  class Queue final : public CopyQueue {
   public:
    explicit Queue(StreamDevice& device) : device_(device), stream_(device.new_stream()) {}

    void to_device(std::byte* to, const std::byte* from, uint64_t bytes) override {
      rows_to_device(to, from, bytes, 1, bytes);
    }
    void rows_to_device(std::byte* to, const std::byte* from, uint64_t row_bytes, uint64_t rows,
                        uint64_t from_stride) override {
      if (row_bytes == 0 || rows == 0) return;
      std::vector<std::byte> taken;
      if (!device_.memory_.pinned(from, (rows - 1) * from_stride + row_bytes)) {
        awaited_.let_come();  // only bytes that the count says are there are taken
        taken.resize(rows * row_bytes);
        pack(taken.data(), from, row_bytes, rows, from_stride);
      }
      stream_->add([=, this, taken = std::move(taken)] {
        device_.memory_.check_allocated(to, rows * row_bytes);
        if (taken.empty()) return pack(to, from, row_bytes, rows, from_stride);
        std::memcpy(to, taken.data(), taken.size());
      });
    }
    void to_host(std::byte* to, const std::byte* from, uint64_t bytes) override {
      if (bytes == 0) return;
      stream_->add([=, this] {
        device_.memory_.check_allocated(from, bytes);
        std::memcpy(to, from, bytes);
      });
    }
    void finish() override { stream_->finish(); }
    void wait_for_count(const std::atomic<uint32_t>& count, uint32_t least) override {
      awaited_ = {&count, least};
      stream_->add([awaited = awaited_] { awaited.let_come(); });
    }
    void publish() override {
      Event& event = device_.new_event();
      stream_->record(event);
      published_ = &event;
    }
    void* published() const override { return published_; }
    void wait_for_mark(void* mark) override {
      stream_->add([mark] { static_cast<const Event*>(mark)->wait(); });
    }

   private:
    struct Awaited {
      const std::atomic<uint32_t>* count = nullptr;
      uint32_t least = 0;

      void let_come() const {
        while (count != nullptr && !has_come_to(*count, least)) std::this_thread::yield();
      }
    };

    static void pack(std::byte* to, const std::byte* from, uint64_t row_bytes, uint64_t rows,
                     uint64_t from_stride) {
      for (uint64_t row = 0; row < rows; ++row) {
        std::memcpy(to + row * row_bytes, from + row * from_stride, row_bytes);
      }
    }

    StreamDevice& device_;
    std::unique_ptr<Stream> stream_;
    std::atomic<Event*> published_{nullptr};
    Awaited awaited_;  // the count that copies wait for
  };

  HostDevice& memory_;
  std::atomic<uint64_t> seed_;
  std::mutex mutex_;
  std::deque<Event> events_;
};

}  // namespace klotski::testing
