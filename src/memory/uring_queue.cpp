#include "memory/read_queue.h"

#ifdef KLOTSKI_HAVE_LIBURING

#include <liburing.h>

#include <cerrno>
#include <chrono>
#include <thread>
#include <vector>

namespace klotski {

namespace {

constexpr int kMaxSubmitAttempts = 1000;  // one millisecond apart
constexpr uint64_t kNoSlot = UINT64_MAX;

void pause() { std::this_thread::sleep_for(std::chrono::milliseconds(1)); }

class UringQueue final : public ReadQueue {
 public:
  // Takes over a ring that has been set up.
  UringQueue(const io_uring& ring, size_t depth) : ring_(ring) { refused_.reserve(depth); }
  ~UringQueue() override { ::io_uring_queue_exit(&ring_); }
  UringQueue(const UringQueue&) = delete;
  UringQueue& operator=(const UringQueue&) = delete;

  void submit(size_t slot, const ReadRequest& request) noexcept override {
    io_uring_sqe* entry = ::io_uring_get_sqe(&ring_);
    if (entry == nullptr) {
      refused_.push_back({slot, -EAGAIN});
      return;
    }
    ::io_uring_prep_read(entry, request.descriptor, request.destination,
                         static_cast<unsigned>(request.bytes), request.offset);
    ::io_uring_sqe_set_data64(entry, slot);
    const int error = hand_over();
    if (error == 0) return;
    // The kernel has not taken the entry, but would with a later call: it must not read then.
    ::io_uring_prep_nop(entry);
    ::io_uring_sqe_set_data64(entry, kNoSlot);
    refused_.push_back({slot, error});
  }

  ReadCompletion wait() noexcept override {
    if (!refused_.empty()) {
      const ReadCompletion completion = refused_.back();
      refused_.pop_back();
      return completion;
    }
    for (;;) {
      io_uring_cqe* entry = nullptr;
      const int error = ::io_uring_wait_cqe(&ring_, &entry);
      if (error != 0) {
        // Giving up is not possible while the kernel holds the caller's memory.
        if (error != -EINTR) pause();
        continue;
      }
      const uint64_t slot = ::io_uring_cqe_get_data64(entry);
      const int64_t result = entry->res;
      ::io_uring_cqe_seen(&ring_, entry);
      if (slot != kNoSlot) return {slot, result};
    }
  }

 private:
  // 0 once the kernel has taken every entry, else the error it keeps answering with.
  int hand_over() noexcept {
    int error = -EAGAIN;
    for (int attempt = 0; attempt < kMaxSubmitAttempts; ++attempt) {
      const int answer = ::io_uring_submit(&ring_);
      if (::io_uring_sq_ready(&ring_) == 0) return 0;
      if (answer < 0) error = answer;
      if (answer != -EINTR) pause();
    }
    return error;
  }

  io_uring ring_;
  std::vector<ReadCompletion> refused_;  // requests that the kernel never took
};

// Kernels before 5.6 have io_uring without the plain read.
bool can_read(io_uring& ring) {
  io_uring_probe* probe = ::io_uring_get_probe_ring(&ring);
  if (probe == nullptr) return false;
  const bool supported = ::io_uring_opcode_supported(probe, IORING_OP_READ) != 0;
  ::io_uring_free_probe(probe);
  return supported;
}

}  // namespace

std::unique_ptr<ReadQueue> make_uring_queue(size_t depth) {
  io_uring ring{};
  if (::io_uring_queue_init(static_cast<unsigned>(depth), &ring, 0) != 0) return nullptr;
  if (!can_read(ring)) {
    ::io_uring_queue_exit(&ring);
    return nullptr;
  }
  return std::make_unique<UringQueue>(ring, depth);
}

}  // namespace klotski

#else

namespace klotski {

std::unique_ptr<ReadQueue> make_uring_queue(size_t) { return nullptr; }

}  // namespace klotski

#endif
