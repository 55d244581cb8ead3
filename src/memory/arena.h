#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "memory/tier.h"

namespace klotski {

// The seam through which large memory comes from the system. Tests replace it to fail the k-th
// call.
class MapCalls {
 public:
  virtual ~MapCalls() = default;
  // Zeroed pages that become real when touched; null with errno set where the system refuses.
  virtual void* map(size_t bytes);
};

// Puts `calls` in force until the guard dies. Not for use while other threads make arenas.
class ScopedMapCalls {
 public:
  explicit ScopedMapCalls(MapCalls& calls);
  ~ScopedMapCalls();
  ScopedMapCalls(const ScopedMapCalls&) = delete;
  ScopedMapCalls& operator=(const ScopedMapCalls&) = delete;

 private:
  MapCalls* previous_;
};

// Page-aligned zeroed memory, accounted in a tier; pages, huge ones where the system has them, are
// taken from the system when touched.
class Arena {
 public:
  Arena(Tier& tier, std::string_view kind, uint64_t bytes);
  ~Arena();
  Arena(Arena&& other) noexcept;
  Arena& operator=(Arena&& other) noexcept;
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  std::span<std::byte> bytes() const { return bytes_; }

 private:
  Reservation reservation_;
  std::span<std::byte> bytes_;
};

// Equal buffers that disk reads may go to: each begins at a multiple of kDirectAlignment.
class BufferPool {
 public:
  // bytes_each is rounded up to a multiple of kDirectAlignment.
  BufferPool(Tier& tier, std::string_view kind, int64_t count, uint64_t bytes_each);
  // Buffers in memory that is taken already and lives longer: a device's.
  BufferPool(std::span<std::byte> memory, int64_t count, uint64_t bytes_each);

  int64_t count() const { return count_; }
  uint64_t buffer_bytes() const { return buffer_bytes_; }
  std::span<std::byte> buffer(int64_t index) const;
  std::span<std::byte> bytes() const { return memory_; }  // bytes of all buffers

 private:
  int64_t count_;
  uint64_t buffer_bytes_;
  std::optional<Arena> arena_;
  std::span<std::byte> memory_;
};

}  // namespace klotski
