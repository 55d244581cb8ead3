#include "weights/counting_new.h"

#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <new>

namespace {

std::atomic<size_t> live{0};
std::atomic<size_t> peak{0};

void* counted_allocation(size_t bytes) noexcept {
  void* block = std::malloc(bytes == 0 ? 1 : bytes);
  if (block == nullptr) return nullptr;
  const size_t now = live += ::malloc_usable_size(block);
  size_t highest = peak;
  while (now > highest && !peak.compare_exchange_weak(highest, now)) {
  }
  return block;
}

void counted_release(void* block) noexcept {
  if (block != nullptr) live -= ::malloc_usable_size(block);
  std::free(block);
}

}  // namespace

void* operator new(size_t bytes) {
  void* block = counted_allocation(bytes);
  if (block == nullptr) throw std::bad_alloc();
  return block;
}
void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  return counted_allocation(bytes);
}
void operator delete(void* block) noexcept { counted_release(block); }
void operator delete(void* block, size_t) noexcept { counted_release(block); }
void operator delete(void* block, const std::nothrow_t&) noexcept { counted_release(block); }

namespace klotski::testing_files {

size_t restart_peak_bytes() {
  const size_t now = live;
  peak = now;
  return now;
}

size_t peak_bytes() { return peak; }

}  // namespace klotski::testing_files
