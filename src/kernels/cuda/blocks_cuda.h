#pragma once

// Quantised blocks (tensor/block_formats.h) in a device's memory, eight columns at a time.

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "base/error.h"
#include "kernels/cuda/vectors_cuda.h"
#include "tensor/format.h"
#include "tensor/tensor_view.h"

namespace klotski::cuda {

// Codes of eight neighbouring columns, a byte each.
struct Codes {
  unsigned words[2];

  __device__ __forceinline__ Codes shifted(unsigned bits, unsigned mask) const {
    return {{words[0] >> bits & mask, words[1] >> bits & mask}};
  }
  // Each byte of `upper` moved up before it is joined.
  __device__ __forceinline__ Codes with(const Codes& upper, unsigned bits) const {
    return {{words[0] | upper.words[0] << bits, words[1] | upper.words[1] << bits}};
  }
};

// Eight bytes, by accesses as large as their alignment in bytes allows.
template <unsigned kAlignment>
__device__ __forceinline__ Codes bytes_at(const std::byte* data) {
  Codes bytes;
  if constexpr (kAlignment >= 8) {
    const uint2 both = *reinterpret_cast<const uint2*>(data);
    bytes = {{both.x, both.y}};
  } else if constexpr (kAlignment == 4) {
    const auto* words = reinterpret_cast<const unsigned*>(data);
    bytes = {{words[0], words[1]}};
  } else if constexpr (kAlignment == 2) {
    const auto* halves = reinterpret_cast<const uint16_t*>(data);
    bytes = {{halves[0] | unsigned{halves[1]} << 16, halves[2] | unsigned{halves[3]} << 16}};
  } else {
    const auto* single = reinterpret_cast<const uint8_t*>(data);
#pragma unroll
    for (int word = 0; word < 2; ++word, single += 4) {
      bytes.words[word] = single[0] | unsigned{single[1]} << 8 | unsigned{single[2]} << 16 |
                          unsigned{single[3]} << 24;
    }
  }
  return bytes;
}

__device__ __forceinline__ unsigned byte_at(const std::byte* data) {
  return *reinterpret_cast<const uint8_t*>(data);
}
__device__ __forceinline__ float half_at(const std::byte* data) {
  return __half2float(*reinterpret_cast<const __half*>(data));
}

// step * (code - first) - below, each step rounded by itself as on the CPU. A byte behind the upper
// bytes of 2^23 is a float of that number more.
__device__ __forceinline__ Floats scaled(const Codes& codes, int first, float step, float below) {
  constexpr unsigned kTwo23 = 0x4B000000u;
  const float taken = 8388608.0f + static_cast<float>(first);
  Floats numbers;
#pragma unroll
  for (int i = 0; i < kVector; ++i) {
    const unsigned bits = __byte_perm(codes.words[i / 4], kTwo23, 0x7540 | i % 4);
    const float code = __uint_as_float(bits) - taken;
    numbers.values[i] = __fsub_rn(__fmul_rn(step, code), below);
  }
  return numbers;
}

// Sixteen levels, 128 added to each, as bytes from the lowest on.
struct Levels {
  unsigned words[4];

  // Levels of codes below 16; 128 is still added.
  __device__ __forceinline__ Codes of(const Codes& codes) const {
    Codes levels;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const unsigned code = codes.words[i];
      const unsigned places =
          (code & 7u) | (code >> 4 & 0x70u) | (code >> 8 & 0x700u) | (code >> 12 & 0x7000u);
      const unsigned upper = (code >> 3 & 0x01010101u) * 0xFFu;
      levels.words[i] = (__byte_perm(words[2], words[3], places) & upper) |
                        (__byte_perm(words[0], words[1], places) & ~upper);
    }
    return levels;
  }
};

__host__ __device__ constexpr Levels packed_levels(const int (&levels)[16]) {
  Levels packed = {};
  for (int i = 0; i < 16; ++i) {
    packed.words[i / 4] |= static_cast<unsigned>(levels[i] + 128) << 8 * (i % 4);
  }
  return packed;
}

inline constexpr int kNonLinear[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                       1,    13,   25,  38,  53,  69,  89,  113};
inline constexpr int kDoubledFp4[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

// Bytes of a format's blocks are multiples of this power of two, up to what one access can read.
__host__ __device__ constexpr unsigned block_alignment(unsigned bytes) {
  const unsigned lowest = bytes & (~bytes + 1);
  return lowest < 16 ? lowest : 16;
}

// Four bits a column of 32: sixteen bytes, the first sixteen columns in their lower halves.
template <unsigned kAlignment>
__device__ __forceinline__ Codes four_bits_of_32(const std::byte* codes, unsigned column) {
  return bytes_at<kAlignment>(codes + column % 16).shifted(column / 16 * 4, 0x0F0F0F0Fu);
}

// Four bits a column of 256: 32 bytes hold two times 32 columns, the lower halves first.
template <unsigned kAlignment>
__device__ __forceinline__ Codes four_bits_of_64(const std::byte* codes, unsigned column) {
  return bytes_at<kAlignment>(codes + column / 64 * 32 + column % 32)
      .shifted(column % 64 / 32 * 4, 0x0F0F0F0Fu);
}

// Two bits a column of 256: 32 bytes hold four times 32 columns, from the lowest bits up.
template <unsigned kAlignment>
__device__ __forceinline__ Codes two_bits(const std::byte* codes, unsigned column) {
  return bytes_at<kAlignment>(codes + column / 128 * 32 + column % 32)
      .shifted(column % 128 / 32 * 2, 0x03030303u);
}

// One bit a column of 256: bit r of 32 bytes is of columns 32 r and on.
template <unsigned kAlignment>
__device__ __forceinline__ Codes one_bit(const std::byte* codes, unsigned column) {
  return bytes_at<kAlignment>(codes + column % 32).shifted(column / 32, 0x01010101u);
}

// One bit a column of 32, in four bytes.
__device__ __forceinline__ Codes spread_bits(const std::byte* bits, unsigned column) {
  const unsigned eight = byte_at(bits + column / 8);
  const auto spread = [](unsigned four) {
    return (four & 1u) | (four & 2u) << 7 | (four & 4u) << 14 | (four & 8u) << 21;
  };
  return {{spread(eight & 15u), spread(eight >> 4)}};
}

// Scale and minimum of a group of Q4_K and Q5_K, times the block's own.
struct StepBelow {
  float step;
  float below;
};
__device__ __forceinline__ StepBelow with_minimum(const std::byte* block, unsigned group) {
  const std::byte* small = block + 4;
  unsigned scale;
  unsigned minimum;
  if (group < 4) {
    scale = byte_at(small + group) & 63u;
    minimum = byte_at(small + group + 4) & 63u;
  } else {
    const unsigned both = byte_at(small + group + 4);
    scale = (both & 15u) | byte_at(small + group - 4) >> 6 << 4;
    minimum = both >> 4 | byte_at(small + group) >> 6 << 4;
  }
  return {__fmul_rn(half_at(block), static_cast<float>(scale)),
          __fmul_rn(half_at(block + 2), static_cast<float>(minimum))};
}

// A format: the size of its blocks, and the numbers of eight columns from `column` of a block on.
struct Q4_0 {
  static constexpr unsigned kColumns = 32, kBytes = 18;
  static __device__ __forceinline__ Floats eight(const std::byte* block, unsigned column) {
    return scaled(four_bits_of_32<2>(block + 2, column), 8, half_at(block), 0.0f);
  }
};

struct Q4_1 {
  static constexpr unsigned kColumns = 32, kBytes = 20;
  static __device__ __forceinline__ Floats eight(const std::byte* block, unsigned column) {
    return scaled(four_bits_of_32<4>(block + 4, column), 0, half_at(block), -half_at(block + 2));
  }
};

struct Q5_0 {
  static constexpr unsigned kColumns = 32, kBytes = 22;
  static __device__ __forceinline__ Floats eight(const std::byte* block, unsigned column) {
    const Codes codes =
        four_bits_of_32<2>(block + 6, column).with(spread_bits(block + 2, column), 4);
    return scaled(codes, 16, half_at(block), 0.0f);
  }
};

struct Q5_1 {
  static constexpr unsigned kColumns = 32, kBytes = 24;
  static __device__ __forceinline__ Floats eight(const std::byte* block, unsigned column) {
    const Codes codes =
        four_bits_of_32<8>(block + 8, column).with(spread_bits(block + 4, column), 4);
    return scaled(codes, 0, half_at(block), -half_at(block + 2));
  }
};

struct Q8_0 {
  static constexpr unsigned kColumns = 32, kBytes = 34;
  static __device__ __forceinline__ Floats eight(const std::byte* block, unsigned column) {
    Codes codes = bytes_at<2>(block + 2 + column);
    codes.words[0] ^= 0x80808080u;  // 128 added
    codes.words[1] ^= 0x80808080u;
    return scaled(codes, 128, half_at(block), 0.0f);
  }
};

struct Q2_K {
  static constexpr unsigned kColumns = 256, kBytes = 84;
  static __device__ __forceinline__ Floats eight(const std::byte* block, unsigned column) {
    const unsigned small = byte_at(block + column / 16);
    const float step = __fmul_rn(half_at(block + 80), static_cast<float>(small & 15u));
    const float below = __fmul_rn(half_at(block + 82), static_cast<float>(small >> 4));
    return scaled(two_bits<4>(block + 16, column), 0, step, below);
  }
};

struct Q3_K {
  static constexpr unsigned kColumns = 256, kBytes = 110;
  static __device__ __forceinline__ Floats eight(const std::byte* block, unsigned column) {
    const unsigned group = column / 16;
    const unsigned low = byte_at(block + 96 + group % 8) >> group / 8 * 4 & 15u;
    const unsigned high = byte_at(block + 104 + group % 4) >> group / 4 * 2 & 3u;
    const int small = static_cast<int>(low | high << 4) - 32;
    const float step = __fmul_rn(half_at(block + 108), static_cast<float>(small));
    const Codes codes = two_bits<2>(block + 32, column).with(one_bit<2>(block, column), 2);
    return scaled(codes, 4, step, 0.0f);
  }
};

struct Q4_K {
  static constexpr unsigned kColumns = 256, kBytes = 144;
  static __device__ __forceinline__ Floats eight(const std::byte* block, unsigned column) {
    const StepBelow group = with_minimum(block, column / 32);
    return scaled(four_bits_of_64<8>(block + 16, column), 0, group.step, group.below);
  }
};

struct Q5_K {
  static constexpr unsigned kColumns = 256, kBytes = 176;
  static __device__ __forceinline__ Floats eight(const std::byte* block, unsigned column) {
    const StepBelow group = with_minimum(block, column / 32);
    const Codes codes =
        four_bits_of_64<8>(block + 48, column).with(one_bit<8>(block + 16, column), 4);
    return scaled(codes, 0, group.step, group.below);
  }
};

struct Q6_K {
  static constexpr unsigned kColumns = 256, kBytes = 210;
  static __device__ __forceinline__ Floats eight(const std::byte* block, unsigned column) {
    const auto small = *reinterpret_cast<const int8_t*>(block + 192 + column / 16);
    const float step = __fmul_rn(half_at(block + 208), static_cast<float>(small));
    // Four bits a column: 64 bytes hold 128 columns, the first 64 columns in their lower halves.
    const Codes low = bytes_at<2>(block + column / 128 * 64 + column % 64)
                          .shifted(column % 128 / 64 * 4, 0x0F0F0F0Fu);
    return scaled(low.with(two_bits<2>(block + 128, column), 4), 32, step, 0.0f);
  }
};

struct Iq4Nl {
  static constexpr unsigned kColumns = 32, kBytes = 18;
  static __device__ __forceinline__ Floats eight(const std::byte* block, unsigned column) {
    constexpr Levels kLevels = packed_levels(kNonLinear);
    return scaled(kLevels.of(four_bits_of_32<2>(block + 2, column)), 128, half_at(block), 0.0f);
  }
};

struct Iq4Xs {
  static constexpr unsigned kColumns = 256, kBytes = 136;
  static __device__ __forceinline__ Floats eight(const std::byte* block, unsigned column) {
    constexpr Levels kLevels = packed_levels(kNonLinear);
    const unsigned group = column / 32;
    const unsigned upper = *reinterpret_cast<const uint16_t*>(block + 2);
    const unsigned low = byte_at(block + 4 + group / 2) >> group % 2 * 4 & 15u;
    const int small = static_cast<int>(low | (upper >> 2 * group & 3u) << 4) - 32;
    const float step = __fmul_rn(half_at(block), static_cast<float>(small));
    const Codes codes = four_bits_of_32<8>(block + 8 + group * 16, column % 32);
    return scaled(kLevels.of(codes), 128, step, 0.0f);
  }
};

struct Mxfp4 {
  static constexpr unsigned kColumns = 32, kBytes = 17;
  static __device__ __forceinline__ Floats eight(const std::byte* block, unsigned column) {
    constexpr Levels kLevels = packed_levels(kDoubledFp4);
    // 2^(exponent - 128): the levels are doubled.
    const unsigned exponent = byte_at(block);
    const float scale =
        __uint_as_float(exponent < 2 ? 0x00200000u << exponent : exponent - 1 << 23);
    return scaled(kLevels.of(four_bits_of_32<1>(block + 1, column)), 128, scale, 0.0f);
  }
};

// A matrix of blocks.
struct BlockMatrix {
  const std::byte* data;  // the first block of the matrix's first row
  int64_t stride;         // bytes from one row to the next
  int64_t rows;
  unsigned columns;

  BlockMatrix() = default;
  BlockMatrix(const TensorView& weight, unsigned alignment)
      : data(weight.data + format_of(weight.dtype).blocks_bytes(weight.first_column)),
        stride(weight.stride()),
        rows(weight.rows()),
        columns(static_cast<unsigned>(weight.columns())) {
    if ((reinterpret_cast<uintptr_t>(data) | static_cast<uintptr_t>(stride)) % alignment) {
      fail(ErrorKind::internal, "blocks that are not aligned reached a device's product");
    }
  }

  // Eight numbers from a column on, a multiple of eight; numbers beyond the last are of its block.
  // `further` columns of the same block are added: where only they differ from call to call, the
  // compiler reads the scales once.
  template <typename Block>
  __device__ __forceinline__ Floats eight(int64_t row, unsigned column,
                                          unsigned further = 0) const {
    const std::byte* block =
        data + row * stride + int64_t{column / Block::kColumns} * Block::kBytes;
    return Block::eight(block, column % Block::kColumns + further);
  }
};

}  // namespace klotski::cuda
