// The tile product tdpbf16ps: 16 rows by 16 outputs, 32 columns of each.

#include "kernels/cpu/isa/amx_tiles.h"

#include "loops.h"

KLOTSKI_DECLARE_MULTIPLY(amx_bf16, bf16)

namespace klotski::bench::amx_bf16 {

int64_t bf16(int64_t rounds, float* sink) {
  using namespace cpu::amx_bf16;
  constexpr int kSums = 6;  // two more tiles are the operands
  constexpr int64_t kOperations = 16 * 16 * 32 * 2;
  uint16_t numbers[kTileBytes / 2];
  for (int i = 0; i < kTileBytes / 2; ++i) {
    numbers[i] = static_cast<uint16_t>(0x3A00 + i % 251 + (i % 2) * 0x8000);
  }
  const TileRegisters registers;
  const auto* tile = reinterpret_cast<const std::byte*>(numbers);
  load_tile<6>(tile, kTileRowBytes);
  load_tile<7>(tile, kTileRowBytes);
  zero_tile<0>();
  zero_tile<1>();
  zero_tile<2>();
  zero_tile<3>();
  zero_tile<4>();
  zero_tile<5>();
  for (int64_t round = 0; round < rounds; ++round) {
    add_product<0, 6, 7>();
    add_product<1, 6, 7>();
    add_product<2, 6, 7>();
    add_product<3, 6, 7>();
    add_product<4, 6, 7>();
    add_product<5, 6, 7>();
  }
  float sums[kTileBytes / 4];
  store_tile<0>(reinterpret_cast<std::byte*>(sums), kTileRowBytes);
  *sink += sums[0];
  return rounds * kSums * kOperations;
}

}  // namespace klotski::bench::amx_bf16
