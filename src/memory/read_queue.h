#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace klotski {

struct ReadRequest {
  int descriptor = -1;
  uint64_t offset = 0;
  uint64_t bytes = 0;
  std::byte* destination = nullptr;
};

struct ReadCompletion {
  size_t slot = 0;     // the slot given to submit
  int64_t result = 0;  // bytes read, or a negative error number
};

// Reads under way, at most `depth` of them. Used by one thread. Nothing here throws once the queue
// is made: an error on the way must not leave the kernel writing into memory that is used again.
class ReadQueue {
 public:
  virtual ~ReadQueue() = default;
  // Each submitted request comes back from wait() exactly once.
  virtual void submit(size_t slot, const ReadRequest& request) noexcept = 0;
  // Blocks until a request is back. Only to be called while there is one under way.
  virtual ReadCompletion wait() noexcept = 0;
};

// Null where the kernel refuses io_uring, or where the program was built without liburing.
std::unique_ptr<ReadQueue> make_uring_queue(size_t depth);

// `depth` threads that call pread; fewer where the system has no more to give.
std::unique_ptr<ReadQueue> make_thread_queue(size_t depth);

}  // namespace klotski
