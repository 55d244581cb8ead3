#pragma once

// A format that only tests know: blocks of 32 whole numbers of 8 bits, whose scales, one F16 number
// a block, lie in a side tensor. It has no kernels on any processor.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "tensor/format.h"
#include "tensor/half.h"
#include "tensor/tensor_view.h"

namespace klotski::testing_formats {

inline constexpr int64_t kDrillBlock = 32;

inline void expand_drill(const TensorView& matrix, int64_t row, std::byte* out) {
  const int64_t blocks = matrix.columns_of_row() / kDrillBlock;
  const std::byte* numbers = matrix.data + row * matrix.stride();
  for (int64_t c = 0; c < matrix.columns(); ++c) {
    const int64_t column = matrix.first_column + c;
    const int64_t block = matrix.row_of_matrix(row) * blocks + column / kDrillBlock;
    uint16_t scale = 0;
    std::memcpy(&scale, matrix.sides[0] + block * 2, sizeof(scale));
    const auto number = static_cast<float>(std::to_integer<int8_t>(numbers[column]));
    const float value = number * f16_to_float(scale);
    std::memcpy(out + c * 4, &value, sizeof(value));
  }
}

inline constexpr SideTensor kDrillSides[] = {{.name = {.drop = ".weight", .add = ".q8_scales"},
                                              .dtype = DType::F16,
                                              .block_rows = 1,
                                              .block_columns = kDrillBlock}};

// The type of the format, which is known from the first call on.
inline DType drill_type() {
  static const WeightFormat kFormat = {.name = "Q8_DRILL",
                                       .values = DType::F32,
                                       .file_name = {.drop = ".weight", .add = ".q8"},
                                       .file_type = DType::I8,
                                       .block_columns = kDrillBlock,
                                       .block_bytes = kDrillBlock,
                                       .sides = kDrillSides,
                                       .lossy = true,
                                       .noise = {~uint64_t{0}, 0},
                                       .expand = expand_drill};
  static const DType kType = add_format(kFormat);
  return kType;
}

// Scales that are powers of two make numbers that BF16 can hold as well.
enum class DrillScales { smallest, powers_of_two };

// A matrix of the format made of numbers, each rounded to a multiple of its block's scale.
struct DrillMatrix {
  Shape shape;
  std::vector<int8_t> numbers;
  std::vector<uint16_t> scales;  // F16

  DrillMatrix(std::span<const float> values, Shape of, DrillScales kind = DrillScales::smallest)
      : shape(std::move(of)) {
    for (size_t begin = 0; begin < values.size(); begin += kDrillBlock) {
      const std::span<const float> block = values.subspan(begin, kDrillBlock);
      float largest = 0.0f;
      for (const float value : block) largest = std::max(largest, std::fabs(value));
      const float smallest = largest / 127.0f;
      const bool power = kind == DrillScales::powers_of_two && largest > 0.0f;
      scales.push_back(float_to_f16(power ? std::exp2(std::ceil(std::log2(smallest))) : smallest));
      const float scale = f16_to_float(scales.back());
      for (const float value : block) {
        const float steps = scale == 0.0f ? 0.0f : std::round(value / scale);
        numbers.push_back(static_cast<int8_t>(std::clamp(steps, -127.0f, 127.0f)));
      }
    }
  }
  TensorView view() const {
    TensorView view{.data = reinterpret_cast<const std::byte*>(numbers.data()),
                    .dtype = drill_type(),
                    .shape = shape};
    view.sides[0] = reinterpret_cast<const std::byte*>(scales.data());
    return view;
  }
};

// The numbers of a matrix whose format expands to F32.
inline std::vector<float> expanded(const TensorView& matrix) {
  std::vector<float> values(static_cast<size_t>(matrix.rows() * matrix.columns()));
  for (int64_t row = 0; row < matrix.rows(); ++row) {
    format_of(matrix.dtype)
        .expand(matrix, row, reinterpret_cast<std::byte*>(values.data() + row * matrix.columns()));
  }
  return values;
}

}  // namespace klotski::testing_formats
