#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "memory/alignment.h"
#include "memory/direct_file.h"
#include "memory/read_block.h"
#include "memory/read_queue.h"

namespace klotski {

enum class ReadMethod {
  automatic,  // io_uring where the kernel allows it, else threads
  io_uring,
  threads,
};

// The seam for tests, for both methods: sees each request and may replace its result. Called by the
// thread that reads.
class ReadHook {
 public:
  virtual ~ReadHook() = default;
  virtual void submitted(const ReadRequest&) noexcept {}
  // `result` is the number of bytes read or a negative error number; the returned value replaces
  // it.
  virtual int64_t completed(const ReadRequest&, int64_t result) noexcept { return result; }
};

struct DiskReaderOptions {
  ReadMethod method = ReadMethod::automatic;
  int queue_depth = 8;
  uint64_t block_bytes = kMiB;    // extents are read in blocks of this size
  int attempts = 3;               // tries of a block that fails with EIO
  uint64_t bytes_per_second = 0;  // imitates a slower disk; 0: as fast as it goes
  ReadHook* hook = nullptr;
};

struct ReadCounts {
  uint64_t bytes = 0;     // arrived where they were wanted
  uint64_t requests = 0;  // made, retried ones included
  uint64_t retried = 0;   // after a short read, an interruption or an error
};

// Reads from model files into memory, several blocks at a time. Used by one thread at a time.
class DiskReader {
 public:
  // Throws device_unavailable where io_uring is asked for by name and cannot be had.
  explicit DiskReader(const DiskReaderOptions& options);
  ~DiskReader();
  DiskReader(const DiskReader&) = delete;
  DiskReader& operator=(const DiskReader&) = delete;

  // Returns when every extent has arrived, or throws when one cannot be had or its file was written
  // to since it was opened; in both cases nothing is under way any more and the memory is the
  // caller's again.
  void read(std::span<const ReadExtent> extents);

  ReadMethod method() const { return method_; }  // io_uring or threads
  const ReadCounts& counts() const { return counts_; }

 private:
  struct Slot {
    ReadBlock block;
    ReadRequest request;  // the request under way
  };

  void start(const ReadBlock& block);
  void submit(size_t slot);
  void finish_one();
  void wait_for_turn(uint64_t bytes);

  const DiskReaderOptions options_;
  ReadHook no_hook_;
  ReadHook& hook_;
  std::vector<Slot> slots_;  // queue_depth
  std::vector<size_t> idle_;
  std::optional<ReadFailure> failure_;                // the first of the current call
  std::chrono::steady_clock::time_point next_start_;  // start of the next block, with
                                                      // bytes_per_second
  ReadCounts counts_;
  ReadMethod method_ = ReadMethod::threads;
  std::unique_ptr<ReadQueue> queue_;  // last: dies first
};

}  // namespace klotski
