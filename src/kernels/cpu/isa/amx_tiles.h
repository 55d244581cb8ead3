#pragma once

// The tile registers: eight, each of 16 rows of 64 bytes. Their instructions are written out
// because g++ 12 has no functions for them that take the register as a template parameter, nor that
// keep earlier stores to memory before the tile's load.

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/isa/vector.h"

namespace klotski::cpu::KLOTSKI_ISA {

inline constexpr int64_t kTileRowBytes = 64;
inline constexpr int64_t kTileBytes = 16 * kTileRowBytes;

// The calling thread's tiles, for as long as this lives.
class TileRegisters {
 public:
  TileRegisters() {
    struct alignas(64) {
      uint8_t palette = 1;
      uint8_t start_row = 0;
      uint8_t reserved[14] = {};
      uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
      uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
    } layout;
    static_assert(sizeof(layout) == 64);
    asm volatile("ldtilecfg %0" ::"m"(layout));
  }
  ~TileRegisters() { asm volatile("tilerelease" ::); }
  TileRegisters(const TileRegisters&) = delete;
  TileRegisters& operator=(const TileRegisters&) = delete;
};

template <int kTile>
KLOTSKI_INLINE void zero_tile() {
  asm volatile("tilezero %%tmm%c0" ::"i"(kTile));
}

// `stride`: bytes from one row to the next.
template <int kTile>
KLOTSKI_INLINE void load_tile(const std::byte* rows, int64_t stride) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(rows), "r"(stride), "i"(kTile) : "memory");
}

template <int kTile>
KLOTSKI_INLINE void store_tile(std::byte* rows, int64_t stride) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(rows), "r"(stride), "i"(kTile) : "memory");
}

// sum[m][n] += sum over k of left[m][k] * right[k / 2][n][k % 2]; sums of float32, the rest bf16.
template <int kSum, int kLeft, int kRight>
KLOTSKI_INLINE void add_product() {
  asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kSum), "i"(kLeft), "i"(kRight));
}

}  // namespace klotski::cpu::KLOTSKI_ISA
