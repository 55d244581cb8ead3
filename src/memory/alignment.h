#pragma once

#include <cstddef>
#include <cstdint>

namespace klotski {

// Alignment of offsets, lengths and memory that satisfies O_DIRECT on every disk and file system in
// use.
inline constexpr uint64_t kDirectAlignment = 4096;

constexpr uint64_t round_down_to_alignment(uint64_t bytes) {
  return bytes / kDirectAlignment * kDirectAlignment;
}

// `bytes` is at most 2^64 - kDirectAlignment.
constexpr uint64_t round_up_to_alignment(uint64_t bytes) {
  return round_down_to_alignment(bytes + kDirectAlignment - 1);
}

constexpr bool is_aligned(uint64_t value) { return value % kDirectAlignment == 0; }

inline bool is_aligned(const std::byte* address) {
  return is_aligned(reinterpret_cast<uintptr_t>(address));
}

// The aligned range around a byte range; the first byte asked for lies `skip` bytes into it.
struct AlignedRange {
  uint64_t offset = 0;
  uint64_t bytes = 0;
  uint64_t skip = 0;
};

constexpr AlignedRange aligned_range(uint64_t offset, uint64_t bytes) {
  const uint64_t begin = round_down_to_alignment(offset);
  return {begin, bytes == 0 ? 0 : round_up_to_alignment(offset + bytes) - begin, offset - begin};
}

}  // namespace klotski
