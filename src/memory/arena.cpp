#include "memory/arena.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/bytes.h"
#include "base/error.h"
#include "base/memory_limit.h"
#include "memory/alignment.h"

namespace klotski {

namespace {

MapCalls default_calls;
MapCalls* current_calls = &default_calls;

uint64_t rounded_buffer_bytes(uint64_t bytes_each) {
  if (bytes_each > UINT64_MAX - kDirectAlignment) {
    fail(ErrorKind::does_not_fit, "a buffer of {} bytes does not fit any memory", bytes_each);
  }
  return round_up_to_alignment(bytes_each);
}

uint64_t pool_bytes(std::string_view kind, int64_t count, uint64_t buffer_bytes) {
  uint64_t bytes = 0;
  if (count < 0) fail(ErrorKind::internal, "a pool of {} buffers for {}", count, kind);
  if (!multiply_checked(static_cast<uint64_t>(count), buffer_bytes, &bytes)) {
    fail(ErrorKind::does_not_fit, "{} buffers of {} for {} do not fit any memory", count,
         format_bytes(buffer_bytes), kind);
  }
  return bytes;
}

}  // namespace

void* MapCalls::map(size_t bytes) {
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  // Direct reads into huge pages need far fewer entries in the disk's lists: twice as fast on some
  // disks. With larger base pages a huge page has hundreds of MiB: too much for one touched byte.
  if (::sysconf(_SC_PAGESIZE) == 4096) ::madvise(memory, bytes, MADV_HUGEPAGE);
  return memory;
}

ScopedMapCalls::ScopedMapCalls(MapCalls& calls) : previous_(std::exchange(current_calls, &calls)) {}

ScopedMapCalls::~ScopedMapCalls() { current_calls = previous_; }

Arena::Arena(Tier& tier, std::string_view kind, uint64_t bytes)
    : reservation_(tier.reserve(kind, bytes)) {
  if (bytes == 0) return;
  void* memory = current_calls->map(bytes);
  if (memory == nullptr) {
    const int error = errno;
    fail(ErrorKind::does_not_fit, "{}: the system refused {} bytes ({}) for {} ({}): {}",
         tier.name(), bytes, format_bytes(bytes), kind, std::strerror(error),
         describe_shortage(bytes));
  }
  bytes_ = {static_cast<std::byte*>(memory), static_cast<size_t>(bytes)};
}

Arena::~Arena() {
  if (!bytes_.empty()) ::munmap(bytes_.data(), bytes_.size());
}

Arena::Arena(Arena&& other) noexcept
    : reservation_(std::move(other.reservation_)), bytes_(std::exchange(other.bytes_, {})) {}

Arena& Arena::operator=(Arena&& other) noexcept {
  std::swap(reservation_, other.reservation_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

BufferPool::BufferPool(Tier& tier, std::string_view kind, int64_t count, uint64_t bytes_each)
    : count_(count),
      buffer_bytes_(rounded_buffer_bytes(bytes_each)),
      arena_(std::in_place, tier, kind, pool_bytes(kind, count, buffer_bytes_)),
      memory_(arena_->bytes()) {}

BufferPool::BufferPool(std::span<std::byte> memory, int64_t count, uint64_t bytes_each)
    : count_(count), buffer_bytes_(rounded_buffer_bytes(bytes_each)), memory_(memory) {
  if (pool_bytes("a pool", count, buffer_bytes_) > memory.size()) {
    fail(ErrorKind::internal, "{} bytes of memory for {} buffers of {}", memory.size(), count,
         buffer_bytes_);
  }
}

std::span<std::byte> BufferPool::buffer(int64_t index) const {
  if (index < 0 || index >= count_) {
    fail(ErrorKind::internal, "buffer {} of a pool of {}", index, count_);
  }
  return memory_.subspan(static_cast<size_t>(index) * buffer_bytes_, buffer_bytes_);
}

}  // namespace klotski
