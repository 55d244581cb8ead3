// Rows of quantised checkpoints (tensor/checkpoint_formats.h).

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <vector>

#include "tensor/block_bytes.h"
#include "tensor/checkpoint_formats.h"
#include "tensor/tensor_view.h"

namespace klotski {

namespace {

// Number `number` of four bits in word `word` of a list of I32.
int four_bits(const std::byte* words, int64_t word, int64_t number) {
  return static_cast<int>(nibble_at(words, 4 * word + number / 2, number % 2));
}

// Element `at` of a list of scales: F32, F16 or BF16.
float scale_at(const std::byte* scales, DType dtype, int64_t at) {
  if (dtype == DType::F32) {
    float scale = 0.0f;
    std::memcpy(&scale, scales + 4 * at, sizeof(scale));
    return scale;
  }
  const auto bits = static_cast<uint16_t>(two_bytes_at(scales, 2 * at));
  return dtype == DType::F16 ? f16_to_float(bits) : bf16_to_float(bits);
}

// Calls numbers(group, begin, end) for columns begin .. end - 1 of the matrix, those of the view
// that lie in one group.
template <typename Numbers>
void for_each_group(const TensorView& matrix, int64_t group_columns, Numbers numbers) {
  const int64_t last = matrix.first_column + matrix.columns();
  for (int64_t begin = matrix.first_column; begin < last;) {
    const int64_t group = begin / group_columns;
    const int64_t end = std::min((group + 1) * group_columns, last);
    numbers(group, begin, end);
    begin = end;
  }
}

int64_t groups_of_row(const TensorView& matrix, int64_t group_columns) {
  return (matrix.columns_of_row() + group_columns - 1) / group_columns;
}

// Expands a row of a transposed format. number(column) is q of a column; `zero_number` the place of
// the row among the numbers of a word; zero(z) makes a zero point of its four bits.
template <typename Number, typename Zero>
void expand_transposed(const TensorView& matrix, int64_t row, int64_t zero_number, Number number,
                       Zero zero, std::byte* out) {
  const int64_t group_columns = format_of(matrix.dtype).sides[0].block_columns;
  const int64_t rows = matrix.rows_of_matrix();
  const int64_t stored_row = matrix.row_of_matrix(row);
  auto* numbers = reinterpret_cast<float*>(out);
  for_each_group(matrix, group_columns, [&](int64_t group, int64_t begin, int64_t end) {
    const float scale = scale_at(matrix.sides[0], DType::F16, group * rows + stored_row);
    const int64_t word = group * (rows / kNumbersInWord) + stored_row / kNumbersInWord;
    const int zero_point = zero(four_bits(matrix.sides[1], word, zero_number));
    for (int64_t column = begin; column < end; ++column) {
      *numbers++ = scale * static_cast<float>(number(column) - zero_point);
    }
  });
}

template <int added_to_zeros>
void expand_gptq(const TensorView& matrix, int64_t row, std::byte* out) {
  const int64_t rows = matrix.rows_of_matrix();
  const int64_t stored_row = matrix.row_of_matrix(row);
  expand_transposed(
      matrix, row, stored_row % kNumbersInWord,
      [&](int64_t column) {
        return four_bits(matrix.data, column / kNumbersInWord * rows + stored_row,
                         column % kNumbersInWord);
      },
      [](int z) { return z + added_to_zeros; }, out);
}

// 2^(exponent - 127), or NaN.
float power_of_two(uint32_t exponent) {
  constexpr uint32_t kLeast = 0x00400000u;  // 2^-127
  constexpr uint32_t kNan = 0x7FC00000u;
  if (exponent == 255) return std::bit_cast<float>(kNan);
  return std::bit_cast<float>(exponent == 0 ? kLeast : exponent << 23);
}

}  // namespace

float e4m3_to_float(uint8_t code) {
  const uint32_t sign = static_cast<uint32_t>(code & 0x80u) << 24;
  const uint32_t exponent = (code >> 3) & 0xFu;
  const uint32_t fraction = code & 7u;
  if (exponent == 15 && fraction == 7) return std::bit_cast<float>(sign | 0x7FC00000u);
  if (exponent == 0) {
    const float number = static_cast<float>(fraction) / 512.0f;  // fraction * 2^-9
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(number));
  }
  return std::bit_cast<float>(sign | (exponent + 127 - 7) << 23 | fraction << 20);
}

void expand_fp8_row(const TensorView& matrix, int64_t row, std::byte* out) {
  static const auto kNumbers = [] {
    std::array<float, 256> numbers{};
    for (size_t code = 0; code < numbers.size(); ++code) {
      numbers[code] = e4m3_to_float(static_cast<uint8_t>(code));
    }
    return numbers;
  }();
  const DType scales = format_of(matrix.dtype).sides[0].dtype;
  const std::byte* codes = matrix.data + row * matrix.stride();
  const int64_t first_scale =
      matrix.row_of_matrix(row) / kFp8Block * groups_of_row(matrix, kFp8Block);
  auto* numbers = reinterpret_cast<float*>(out);
  for_each_group(matrix, kFp8Block, [&](int64_t group, int64_t begin, int64_t end) {
    const float scale = scale_at(matrix.sides[0], scales, first_scale + group);
    for (int64_t column = begin; column < end; ++column) {
      *numbers++ = kNumbers[std::to_integer<size_t>(codes[column])] * scale;
    }
  });
}

void expand_int4_row(const TensorView& matrix, int64_t row, std::byte* out) {
  const std::span<const SideTensor> sides = format_of(matrix.dtype).sides;
  const int64_t group_columns = sides[0].block_columns;
  const int64_t groups = groups_of_row(matrix, group_columns);
  const int64_t stored_row = matrix.row_of_matrix(row);
  const std::byte* words = matrix.data + row * matrix.stride();
  auto* numbers = reinterpret_cast<float*>(out);
  for_each_group(matrix, group_columns, [&](int64_t group, int64_t begin, int64_t end) {
    const float scale = scale_at(matrix.sides[0], sides[0].dtype, stored_row * groups + group);
    const int zero = sides.size() == 1
                         ? 8
                         : four_bits(matrix.sides[1], stored_row / kNumbersInWord * groups + group,
                                     stored_row % kNumbersInWord);
    for (int64_t column = begin; column < end; ++column) {
      const int q = four_bits(words, column / kNumbersInWord, column % kNumbersInWord);
      *numbers++ = scale * static_cast<float>(q - zero);
    }
  });
}

void expand_gptq_row(const TensorView& matrix, int64_t row, std::byte* out) {
  expand_gptq<1>(matrix, row, out);
}

void expand_gptq_v2_row(const TensorView& matrix, int64_t row, std::byte* out) {
  expand_gptq<0>(matrix, row, out);
}

void expand_awq_row(const TensorView& matrix, int64_t row, std::byte* out) {
  static constexpr std::array<int64_t, 8> kPlaces = {0, 4, 1, 5, 2, 6, 3, 7};  // by row of the word
  const int64_t words = matrix.rows_of_matrix() / kNumbersInWord;
  const int64_t stored_row = matrix.row_of_matrix(row);
  const int64_t place = kPlaces[static_cast<size_t>(stored_row % kNumbersInWord)];
  expand_transposed(
      matrix, row, place,
      [&](int64_t column) {
        return four_bits(matrix.data, column * words + stored_row / kNumbersInWord, place);
      },
      [](int z) { return z; }, out);
}

void expand_mxfp4_row(const TensorView& matrix, int64_t row, std::byte* out) {
  static constexpr std::array<float, 16> kFp4 = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,
                                                 4.0f,  6.0f,  -0.0f, -0.5f, -1.0f, -1.5f,
                                                 -2.0f, -3.0f, -4.0f, -6.0f};
  const std::byte* bytes = matrix.data + row * matrix.stride();
  const std::byte* exponents =
      matrix.sides[0] + matrix.row_of_matrix(row) * groups_of_row(matrix, kMxBlock);
  auto* numbers = reinterpret_cast<float*>(out);
  for_each_group(matrix, kMxBlock, [&](int64_t group, int64_t begin, int64_t end) {
    const float scale = power_of_two(byte_at(exponents, group));
    for (int64_t column = begin; column < end; ++column) {
      *numbers++ = scale * kFp4[nibble_at(bytes, column / 2, column % 2)];
    }
  });
}

namespace {

// A block of MXFP4 has the numbers of columns i and 16 + i in byte i, one of a checkpoint those of
// columns 2 i and 2 i + 1.
void reorder_mxfp4_block(const std::byte* from, std::byte* to) {
  constexpr std::byte kLow{0x0F};
  constexpr std::byte kHigh{0xF0};
  constexpr size_t kHalf = kMxBlock / 4;  // bytes
  for (size_t i = 0; i < kHalf; ++i) {
    to[2 * i] = (from[i] & kLow) | (from[kHalf + i] << 4);
    to[2 * i + 1] = (from[i] >> 4) | (from[kHalf + i] & kHigh);
  }
}

}  // namespace

// From the last block to the first: each ends behind where it was, and so in front of those that
// are left.
void join_mxfp4_blocks(std::byte* numbers, int64_t blocks) {
  constexpr int64_t kNumberBytes = kMxBlock / 2;
  const std::byte* const scales = numbers + blocks * kNumberBytes;
  const std::vector<std::byte> exponents(scales, scales + blocks);
  std::array<std::byte, kNumberBytes> block;
  for (int64_t i = blocks - 1; i >= 0; --i) {
    std::memcpy(block.data(), numbers + i * kNumberBytes, block.size());
    std::byte* const joined = numbers + i * (1 + kNumberBytes);
    joined[0] = exponents[static_cast<size_t>(i)];
    reorder_mxfp4_block(block.data(), joined + 1);
  }
}

}  // namespace klotski
