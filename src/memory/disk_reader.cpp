#include "memory/disk_reader.h"

#include <algorithm>
#include <thread>

#include "base/error.h"

namespace klotski {

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kMaxQueueDepth = 1024;
constexpr uint64_t kMaxBlockBytes = kGiB;  // the kernel's limit for one read is just below 2 GiB

const DiskReaderOptions& checked(const DiskReaderOptions& options) {
  if (options.queue_depth < 1 || options.queue_depth > kMaxQueueDepth) {
    fail(ErrorKind::usage, "disk reads: expected a queue depth from 1 to {}, found {}",
         kMaxQueueDepth, options.queue_depth);
  }
  if (options.block_bytes == 0 || options.block_bytes > kMaxBlockBytes ||
      !is_aligned(options.block_bytes)) {
    fail(ErrorKind::usage,
         "disk reads: expected blocks of a multiple of {} bytes up to {}, found {}",
         kDirectAlignment, kMaxBlockBytes, options.block_bytes);
  }
  return options;
}

}  // namespace

DiskReader::DiskReader(const DiskReaderOptions& options)
    : options_(checked(options)), hook_(options.hook != nullptr ? *options.hook : no_hook_) {
  const auto depth = static_cast<size_t>(options_.queue_depth);
  slots_.resize(depth);
  for (size_t slot = 0; slot < depth; ++slot) idle_.push_back(slot);
  if (options_.method != ReadMethod::threads) {
    queue_ = make_uring_queue(depth);
    method_ = ReadMethod::io_uring;
  }
  if (queue_ == nullptr && options_.method == ReadMethod::io_uring) {
    fail(ErrorKind::device_unavailable,
         "disk reads: io_uring is refused by the system or was left out of this build; read with "
         "threads instead");
  }
  if (queue_ == nullptr) {
    queue_ = make_thread_queue(depth);
    method_ = ReadMethod::threads;
  }
}

DiskReader::~DiskReader() = default;

void DiskReader::read(std::span<const ReadExtent> extents) {
  BlockCursor blocks(extents, options_.block_bytes);
  failure_.reset();
  next_start_ = std::max(next_start_, Clock::now());
  // Nothing may throw after this until every request is back.
  for (;;) {
    ReadBlock block;
    while (!idle_.empty() && !failure_ && blocks.next(&block)) start(block);
    if (idle_.size() == slots_.size()) break;
    finish_one();
  }
  if (failure_) throw_failure(*failure_);
  const DirectFile* checked_file = nullptr;
  for (const ReadExtent& extent : extents) {
    if (extent.file == checked_file) continue;
    checked_file = extent.file;
    checked_file->require_unchanged();
  }
  wait_for_turn(0);  // a slow disk would have delivered the last block only now
}

void DiskReader::start(const ReadBlock& block) {
  wait_for_turn(block.wanted);
  const size_t slot = idle_.back();
  idle_.pop_back();
  slots_[slot].block = block;
  submit(slot);
}

void DiskReader::submit(size_t slot) {
  ReadRequest& request = slots_[slot].request;
  request = slots_[slot].block.request();
  ++counts_.requests;
  hook_.submitted(request);
  queue_->submit(slot, request);
}

void DiskReader::finish_one() {
  const ReadCompletion completion = queue_->wait();
  Slot& slot = slots_[completion.slot];
  const int64_t answer = hook_.completed(slot.request, completion.result);
  const BlockState state = take_answer(slot.block, answer, options_.attempts);
  if (state == BlockState::again && !failure_) {
    ++counts_.retried;
    submit(completion.slot);
    return;
  }
  if (state == BlockState::complete) counts_.bytes += slot.block.wanted;
  if (state == BlockState::failed && !failure_) failure_ = ReadFailure{slot.block, answer};
  idle_.push_back(completion.slot);
}

void DiskReader::wait_for_turn(uint64_t bytes) {
  if (options_.bytes_per_second == 0) return;
  std::this_thread::sleep_until(next_start_);
  const std::chrono::duration<double> takes(static_cast<double>(bytes) /
                                            static_cast<double>(options_.bytes_per_second));
  next_start_ += std::chrono::duration_cast<Clock::duration>(takes);
}

}  // namespace klotski
