// Quantised blocks of every instruction set against the functions of their formats.

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/cpu/formats.h"
#include "kernels/cpu/testing.h"
#include "tensor/format.h"
#include "tensor/half.h"
#include "tensor/testing.h"

namespace klotski {
namespace {

constexpr int64_t kTestedRows = 40;

// Random bytes are blocks of every magnitude: zeros, denormals, infinities and NaNs as scales too.
struct RandomBlocks {
  DType dtype;
  int64_t columns;
  std::vector<std::byte> bytes;

  RandomBlocks(DType type, int64_t blocks_in_row, unsigned seed)
      : dtype(type),
        columns(blocks_in_row * format_of(type).block_columns),
        bytes(static_cast<size_t>(kTestedRows * bytes_per_row(type, columns))) {
    std::mt19937 random(seed);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  }
  TensorView view() const {
    return {.data = bytes.data(), .dtype = dtype, .shape = {kTestedRows, columns}};
  }
};

std::vector<std::byte> expanded_by(const cpu::Kernels& kernels, const TensorView& matrix,
                                   bool rounded) {
  const cpu::FormatKernel& kernel = cpu::format_kernel(matrix.dtype, rounded);
  const int64_t row_bytes = matrix.columns() * cpu::element_bytes(kernel.type);
  std::vector<std::byte> out(static_cast<size_t>(matrix.rows() * row_bytes));
  kernel.expand(kernels, {matrix, 0, matrix.rows(), out.data(), matrix.columns()});
  return out;
}

// A denormal number may be rounded to zero; of a NaN only that it is one is compared.
bool is_rounded_to(uint16_t found, float number) {
  if (std::isnan(number)) return std::isnan(bf16_to_float(found));
  const bool flushed = std::fabs(number) < 0x1p-126f && (found & 0x7FFF) == 0;
  return flushed || found == float_to_bf16(number);
}

class CpuBlocks : public ::testing::TestWithParam<int> {
 protected:
  DType dtype() const { return static_cast<DType>(GetParam()); }
};

TEST_P(CpuBlocks, EveryInstructionSetExpandsThemToTheSameNumbers) {
  const RandomBlocks blocks(dtype(), 3, 1);
  const int64_t block = format_of(dtype()).block_columns;
  for (const TensorView& view :
       {blocks.view(), columns_between(rows_between(blocks.view(), 3, 9), block, 3 * block - 5)}) {
    const std::vector<float> numbers = testing_formats::expanded(view);
    for (const cpu::Kernels* kernels : every_kernels()) {
      SCOPED_TRACE(kernels->name);
      const std::vector<std::byte> floats = expanded_by(*kernels, view, false);
      const std::vector<std::byte> halves = expanded_by(*kernels, view, true);
      ASSERT_EQ(floats.size(), 4 * numbers.size());
      ASSERT_EQ(halves.size(), 2 * numbers.size());
      for (size_t i = 0; i < numbers.size(); ++i) {
        float number = 0;
        uint16_t rounded = 0;
        std::memcpy(&number, floats.data() + 4 * i, sizeof(number));
        std::memcpy(&rounded, halves.data() + 2 * i, sizeof(rounded));
        ASSERT_TRUE(is_rounded_to(rounded, numbers[i])) << i << ": " << numbers[i];
        if (std::isnan(numbers[i])) {
          ASSERT_TRUE(std::isnan(number)) << i;
        } else {
          ASSERT_EQ(std::bit_cast<uint32_t>(number), std::bit_cast<uint32_t>(numbers[i]))
              << i << ": " << number << " for " << numbers[i];
        }
      }
    }
  }
}

std::string block_name(const ::testing::TestParamInfo<int>& type) {
  return std::string(dtype_name(static_cast<DType>(type.param)));
}

INSTANTIATE_TEST_SUITE_P(Types, CpuBlocks,
                         ::testing::Range(static_cast<int>(DType::Q4_0),
                                          static_cast<int>(DType::MXFP4) + 1),
                         block_name);

}  // namespace
}  // namespace klotski
