#pragma once

// Numbers in the bytes of a block (tensor/block_formats.h).

#include <cstddef>
#include <cstdint>

#include "tensor/half.h"

namespace klotski {

inline uint32_t byte_at(const std::byte* block, int64_t at) {
  return std::to_integer<uint32_t>(block[at]);
}
inline uint32_t two_bytes_at(const std::byte* block, int64_t at) {
  return byte_at(block, at) | byte_at(block, at + 1) << 8;
}
inline float half_at(const std::byte* block, int64_t at) {
  return f16_to_float(static_cast<uint16_t>(two_bytes_at(block, at)));
}
// The byte as a number from -128 to 127.
inline int signed_at(const std::byte* block, int64_t at) {
  return std::to_integer<int8_t>(block[at]);
}
// The lower (0) or upper (1) four bits of a byte.
inline uint32_t nibble_at(const std::byte* block, int64_t at, int64_t half) {
  return byte_at(block, at) >> (4 * half) & 0xFu;
}

}  // namespace klotski
