// Quantised checkpoints (tensor/checkpoint_formats.h) and HQQ (tensor/hqq.h) on a device: the
// numbers of their expand functions, bit for bit where they are numbers.

#include <algorithm>
#include <array>

#include "kernels/cuda/blocks_cuda.h"
#include "kernels/cuda/packed_matrix_cuda.h"
#include "tensor/checkpoint_formats.h"
#include "tensor/hqq.h"

namespace klotski::cuda {

namespace {

__device__ __forceinline__ unsigned two_bytes_at(const std::byte* data) {
  return byte_at(data) | byte_at(data + 1) << 8;
}
__device__ __forceinline__ float bf16_at(const std::byte* data) {
  return __uint_as_float(two_bytes_at(data) << 16);
}
// Number `number` of four bits in word `word` of a list of I32.
__device__ __forceinline__ int four_bits(const std::byte* words, int64_t word, unsigned number) {
  return static_cast<int>(byte_at(words + 4 * word + number / 2) >> number % 2 * 4 & 15u);
}

void require_eights(const TensorView& weight, uint64_t alignment) {
  const auto address = reinterpret_cast<uintptr_t>(weight.data);
  if (weight.first_column % kVector != 0 || address % alignment != 0) {
    fail(ErrorKind::internal, "numbers that are not aligned reached a device's product");
  }
}

// A matrix with scales of its own, elements in side tensors: they lie at any address.
struct ScaledMatrix {
  const std::byte* data;
  const std::byte* scales;
  const std::byte* zeros;  // null: there are no zero points
  int64_t stride;
  int64_t rows;
  unsigned columns;
  unsigned first_row;
  unsigned first_column;
  unsigned all_rows;
  unsigned all_columns;
  unsigned group;  // columns that share a scale
  unsigned groups;
  DType scale_type;

  ScaledMatrix() = default;
  ScaledMatrix(const TensorView& weight, uint64_t alignment)
      : data(weight.data),
        scales(weight.sides[0]),
        zeros(weight.sides[1]),
        stride(weight.stride()),
        rows(weight.rows()),
        columns(static_cast<unsigned>(weight.columns())),
        first_row(static_cast<unsigned>(weight.first_row)),
        first_column(static_cast<unsigned>(weight.first_column)),
        all_rows(static_cast<unsigned>(weight.rows_of_matrix())),
        all_columns(static_cast<unsigned>(weight.columns_of_row())) {
    require_eights(weight, alignment);
    const SideTensor& side = format_of(weight.dtype).sides[0];
    group = static_cast<unsigned>(std::clamp<int64_t>(all_columns, 1, side.block_columns));
    groups = (all_columns + group - 1) / group;
    scale_type = side.dtype;
  }

  __device__ __forceinline__ float scale(int64_t at) const {
    if (scale_type == DType::F32) {
      const std::byte* from = scales + 4 * at;
      return __uint_as_float(two_bytes_at(from) | two_bytes_at(from + 2) << 16);
    }
    const unsigned bits = two_bytes_at(scales + 2 * at);
    if (scale_type == DType::BF16) return __uint_as_float(bits << 16);
    return __half2float(__ushort_as_half(static_cast<unsigned short>(bits)));
  }
};

__device__ __forceinline__ float e4m3(unsigned code) {
  const unsigned sign = (code & 0x80u) << 24;
  const unsigned size = code & 0x7Fu;
  if (size == 0x7F) return __uint_as_float(sign | 0x7FC00000u);
  // As bits of a float the exponent is 120 too small, also of numbers below the least normal one.
  constexpr unsigned kTwo120 = 120 + 127u << 23;
  const float number = __fmul_rn(__uint_as_float(size << 20), __uint_as_float(kTwo120));
  return __uint_as_float(sign | __float_as_uint(number));
}

struct Fp8Matrix : ScaledMatrix {
  Fp8Matrix() = default;
  explicit Fp8Matrix(const TensorView& weight) : ScaledMatrix(weight, 1) {}

  __device__ __forceinline__ Floats eight(int64_t row, unsigned at) const {
    const unsigned column = first_column + at;
    const std::byte* codes = data + row * stride + column;
    const float of_block =
        scale((first_row + row) / kFp8Block * groups + column / static_cast<unsigned>(kFp8Block));
    Floats numbers;
    if (column + kVector <= all_columns && reinterpret_cast<uintptr_t>(codes) % kVector == 0) {
      const Codes eight = bytes_at<8>(codes);
#pragma unroll
      for (int i = 0; i < kVector; ++i) {
        numbers.values[i] = __fmul_rn(e4m3(eight.words[i / 4] >> 8 * (i % 4) & 0xFFu), of_block);
      }
      return numbers;
    }
#pragma unroll
    for (int i = 0; i < kVector; ++i) {
      const bool there = column + i < all_columns;
      numbers.values[i] = there ? __fmul_rn(e4m3(byte_at(codes + i)), of_block) : 0.0f;
    }
    return numbers;
  }
};

// Eight columns in a word.
__device__ __forceinline__ Floats of_word(unsigned word, int zero, float scale) {
  Floats numbers;
#pragma unroll
  for (int i = 0; i < kVector; ++i) {
    const int q = static_cast<int>(word >> 4 * i & 15u);
    numbers.values[i] = __fmul_rn(scale, static_cast<float>(q - zero));
  }
  return numbers;
}

struct Int4Matrix : ScaledMatrix {
  Int4Matrix() = default;
  explicit Int4Matrix(const TensorView& weight) : ScaledMatrix(weight, 4) {}

  __device__ __forceinline__ Floats eight(int64_t row, unsigned at) const {
    const unsigned column = first_column + at;
    const int64_t stored_row = first_row + row;
    const int64_t of = column / group;
    const int zero = zeros == nullptr ? 8
                                      : four_bits(zeros, stored_row / kNumbersInWord * groups + of,
                                                  stored_row % kNumbersInWord);
    const unsigned word =
        *reinterpret_cast<const unsigned*>(data + row * stride + column / kNumbersInWord * 4);
    return of_word(word, zero, scale(stored_row * groups + of));
  }
};

// A matrix whose columns are its outer dimension.
struct TransposedMatrix : ScaledMatrix {
  TransposedMatrix() = default;
  explicit TransposedMatrix(const TensorView& weight) : ScaledMatrix(weight, 4) {}

  __device__ __forceinline__ float scale_of(int64_t stored_row, int64_t of) const {
    return scale(of * all_rows + stored_row);
  }
  __device__ __forceinline__ int zero_of(int64_t stored_row, int64_t of, unsigned number) const {
    return four_bits(zeros, of * (all_rows / kNumbersInWord) + stored_row / kNumbersInWord, number);
  }
};

template <int kAddedToZeros>
struct GptqMatrix : TransposedMatrix {
  using TransposedMatrix::TransposedMatrix;

  __device__ __forceinline__ Floats eight(int64_t row, unsigned at) const {
    const unsigned column = first_column + at;
    const int64_t stored_row = first_row + row;
    const int64_t of = column / group;
    const unsigned word = reinterpret_cast<const unsigned*>(
        data)[int64_t{column / static_cast<unsigned>(kNumbersInWord)} * all_rows + stored_row];
    const int zero = zero_of(stored_row, of, stored_row % kNumbersInWord) + kAddedToZeros;
    return of_word(word, zero, scale_of(stored_row, of));
  }
};

struct AwqMatrix : TransposedMatrix {
  using TransposedMatrix::TransposedMatrix;

  __device__ __forceinline__ Floats eight(int64_t row, unsigned at) const {
    const unsigned column = first_column + at;
    const int64_t stored_row = first_row + row;
    const int64_t words = all_rows / kNumbersInWord;
    const auto in_word = static_cast<unsigned>(stored_row % kNumbersInWord);
    const unsigned place = in_word / 2 + in_word % 2 * 4;  // 0, 4, 1, 5, 2, 6, 3, 7
    const int64_t of = column / group;
    const int zero = zero_of(stored_row, of, place);
    const float by = scale_of(stored_row, of);
    Floats numbers;
#pragma unroll
    for (int i = 0; i < kVector; ++i) {
      if (column + i >= all_columns) {
        numbers.values[i] = 0.0f;
        continue;
      }
      const int q = four_bits(data, (column + i) * words + stored_row / kNumbersInWord, place);
      numbers.values[i] = __fmul_rn(by, static_cast<float>(q - zero));
    }
    return numbers;
  }
};

template <int kBits>
struct HqqMatrix {
  const std::byte* data;
  int64_t stride;
  int64_t rows;
  unsigned columns;
  unsigned first_column;
  unsigned group;
  unsigned scales_at;
  unsigned zeros_at;
  unsigned header_bytes;

  HqqMatrix() = default;
  explicit HqqMatrix(const TensorView& weight)
      : data(weight.data),
        stride(weight.stride()),
        rows(weight.rows()),
        columns(static_cast<unsigned>(weight.columns())),
        first_column(static_cast<unsigned>(weight.first_column)),
        group(hqq_group_columns(weight.dtype)) {
    require_eights(weight, kVector);
    const HqqRow form{kBits, group, weight.columns_of_row()};
    scales_at = static_cast<unsigned>(form.scales_at());
    zeros_at = static_cast<unsigned>(form.zeros_at());
    header_bytes = static_cast<unsigned>(form.header_bytes());
  }

  __device__ __forceinline__ Floats eight(int64_t row, unsigned at) const {
    constexpr unsigned kBlock = kHqqBlock;
    constexpr unsigned kWide = kHqqWideGroup;
    const unsigned column = first_column + at;
    const std::byte* header = data + row * stride;
    const unsigned of = column / group;
    const std::byte* wide = header + of / kWide * 8;
    const auto stored = [](const std::byte* step, unsigned code) {
      return __fadd_rn(bf16_at(step + 2), __fmul_rn(bf16_at(step), static_cast<float>(code)));
    };
    const float scale = stored(wide, byte_at(header + scales_at + of));
    const float zero = stored(wide + 4, byte_at(header + zeros_at + of));

    const std::byte* block = header + header_bytes + column / kBlock * (kBlock / 8 * kBits);
    const unsigned in_block = column % kBlock;
    Codes codes;
    if constexpr (kBits == 4) {
      codes = bytes_at<8>(block + in_block % 32).shifted(in_block / 32 * 4, 0x0F0F0F0Fu);
    } else {
      const Codes lower =
          bytes_at<8>(block + in_block % 16).shifted(in_block / 16 * 2, 0x03030303u);
      codes = lower.with(spread_bits(block + 16, in_block), 2);
    }
    Floats numbers;
#pragma unroll
    for (int i = 0; i < kVector; ++i) {
      const auto code = static_cast<float>(codes.words[i / 4] >> 8 * (i % 4) & 0xFFu);
      numbers.values[i] = __fmul_rn(scale, __fsub_rn(code, zero));
    }
    return numbers;
  }

 private:
  static unsigned hqq_group_columns(DType dtype) {
    constexpr std::array<unsigned, 3> kGroups = {32, 64, 128};
    constexpr DType kFirst = kBits == 4 ? DType::HQQ4_32 : DType::HQQ3_32;
    return kGroups[static_cast<size_t>(dtype) - static_cast<size_t>(kFirst)];
  }
};

template <typename Matrix>
constexpr FormatKernel kKernel = packed_kernel<Matrix>();

}  // namespace

const FormatKernel* checkpoint_kernel(DType dtype) {
  if (dtype >= DType::HQQ4_32 && dtype <= DType::HQQ4_128) return &kKernel<HqqMatrix<4>>;
  if (dtype >= DType::HQQ3_32 && dtype <= DType::HQQ3_128) return &kKernel<HqqMatrix<3>>;
  const CheckpointFormat* format = checkpoint_format(dtype);
  if (format == nullptr) return nullptr;
  switch (format->method) {
    case CheckpointMethod::fp8:
      return &kKernel<Fp8Matrix>;
    case CheckpointMethod::int4:
    case CheckpointMethod::int4_zero_points:
      return &kKernel<Int4Matrix>;
    case CheckpointMethod::gptq:
      return &kKernel<GptqMatrix<1>>;
    case CheckpointMethod::gptq_v2:
      return &kKernel<GptqMatrix<0>>;
    case CheckpointMethod::awq:
      return &kKernel<AwqMatrix>;
    case CheckpointMethod::mxfp4:  // becomes blocks while it is read
      break;
  }
  return nullptr;
}

}  // namespace klotski::cuda
