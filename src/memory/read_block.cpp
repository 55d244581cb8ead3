#include "memory/read_block.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "base/error.h"
#include "memory/alignment.h"

namespace klotski {

namespace {

constexpr int kMaxFruitlessReads = 250;
constexpr std::chrono::microseconds kPauseAfterInterruption{100};
constexpr std::chrono::milliseconds kPauseAfterError{5};

bool fruitless(ReadBlock& block) { return ++block.fruitless < kMaxFruitlessReads; }

BlockState take_bytes(ReadBlock& block, uint64_t bytes) {
  const uint64_t arrived = block.done + bytes;
  if (arrived >= block.wanted) return BlockState::complete;
  if (bytes == 0 || block.range.file->size_now() < block.range.file->size()) {
    return BlockState::failed;
  }
  // A direct read must begin at an aligned byte: the last few that arrived are read again.
  const uint64_t kept = round_down_to_alignment(arrived);
  if (kept > block.done) {
    block.done = kept;
    block.fruitless = 0;
    block.failed = 0;
    return BlockState::again;
  }
  return fruitless(block) ? BlockState::again : BlockState::failed;
}

void check(const ReadExtent& extent) {
  const bool aligned =
      is_aligned(extent.offset) && is_aligned(extent.bytes) && is_aligned(extent.destination);
  if (aligned && extent.bytes <= UINT64_MAX - extent.offset) return;
  fail(ErrorKind::internal,
       "{}: a read of {} bytes at offset {} into address {:#x}: expected multiples of {}",
       path_in_quotes(extent.file->path()), extent.bytes, extent.offset,
       reinterpret_cast<uintptr_t>(extent.destination), kDirectAlignment);
}

}  // namespace

ReadRequest ReadBlock::request() const {
  return {range.file->descriptor(), range.offset + done, range.bytes - done,
          range.destination + done};
}

BlockCursor::BlockCursor(std::span<const ReadExtent> extents, uint64_t block_bytes)
    : extents_(extents), block_bytes_(block_bytes) {
  for (const ReadExtent& extent : extents) check(extent);
}

bool BlockCursor::next(ReadBlock* block) {
  for (; !extents_.empty(); extents_ = extents_.subspan(1), cut_ = 0) {
    const ReadExtent& extent = extents_.front();
    const uint64_t offset = extent.offset + cut_;
    const uint64_t size = extent.file->size();
    if (cut_ == extent.bytes || offset >= size) continue;
    const uint64_t bytes = std::min(block_bytes_, extent.bytes - cut_);
    const uint64_t wanted = std::min(bytes, size - offset);
    *block = ReadBlock{};
    block->range = {extent.file, offset, round_up_to_alignment(wanted), extent.destination + cut_};
    block->wanted = wanted;
    cut_ += bytes;
    return true;
  }
  return false;
}

BlockState take_answer(ReadBlock& block, int64_t answer, int attempts) {
  if (answer >= 0) return take_bytes(block, static_cast<uint64_t>(answer));
  if (answer == -EINTR || answer == -EAGAIN) {
    // Some bytes may have been written before the interruption; none of them count.
    if (!fruitless(block)) return BlockState::failed;
    std::this_thread::sleep_for(kPauseAfterInterruption);
    return BlockState::again;
  }
  if (answer == -EIO && ++block.failed < attempts) {
    std::this_thread::sleep_for(kPauseAfterError);
    return BlockState::again;
  }
  return BlockState::failed;
}

void throw_failure(const ReadFailure& failure) {
  const ReadBlock& block = failure.block;
  const DirectFile& file = *block.range.file;
  const std::string name = path_in_quotes(file.path());
  const ReadRequest request = block.request();
  if (failure.answer < 0) {
    fail(ErrorKind::internal, "{}: reading {} bytes at offset {} failed{}: {}", name, request.bytes,
         request.offset, block.failed > 1 ? fmt::format(" {} times", block.failed) : std::string(),
         std::strerror(static_cast<int>(-failure.answer)));
  }
  const uint64_t size_now = file.size_now();
  if (failure.answer == 0 || size_now < file.size()) {
    fail(
        ErrorKind::bad_model,
        "{}: expected {} bytes as when it was opened, found {}: leave model files alone while they "
        "are in use",
        name, file.size(), size_now < file.size() ? size_now : request.offset);
  }
  fail(ErrorKind::internal,
       "{}: reading at offset {}: expected {} bytes, found {} each of {} times", name,
       request.offset, block.wanted - block.done, failure.answer, block.fruitless);
}

}  // namespace klotski
