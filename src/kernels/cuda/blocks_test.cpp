// Quantised blocks on a device against the functions of their formats and the reference's products.

#include "tensor/block_formats.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/cuda/formats_cuda.h"
#include "kernels/cuda/testing.h"
#include "tensor/format.h"
#include "tensor/half.h"
#include "tensor/testing.h"

namespace klotski {
namespace {

constexpr int kFirstType = static_cast<int>(DType::Q4_0);
constexpr int kLastType = static_cast<int>(DType::MXFP4);

std::vector<DType> block_types() {
  std::vector<DType> types;
  for (int type = kFirstType; type <= kLastType; ++type) types.push_back(static_cast<DType>(type));
  return types;
}

// Any bytes, or with `finite` those of weights of no large magnitude.
std::vector<std::byte> random_blocks(DType type, const Shape& shape, bool finite, unsigned seed) {
  const NoiseBits noise = finite ? format_of(type).noise : NoiseBits{~uint64_t{0}, 0};
  const auto count = static_cast<size_t>(shape[0] * bytes_per_row(type, shape[1]));
  std::vector<std::byte> bytes((count + 7) / 8 * 8);
  std::mt19937_64 random(seed);
  for (size_t i = 0; i < bytes.size(); i += 8) {
    const uint64_t eight = (random() & noise.random) | noise.fixed;
    std::memcpy(bytes.data() + i, &eight, sizeof(eight));
  }
  bytes.resize(count);
  return bytes;
}

class GpuBlocks : public GpuTest {
 protected:
  const cuda::Context& context() const {
    return static_cast<const cuda::CudaProcessor&>(gpu_processor()).context();
  }
};

// A bf16 number that is `number` rounded: of a NaN only that it is one is compared.
bool is_rounded(uint16_t found, float number) {
  if (std::isnan(number)) return std::isnan(bf16_to_float(found));
  return found == float_to_bf16(number);
}

TEST_F(GpuBlocks, ExpandToTheNumbersOfTheCpu) {
  constexpr int64_t kRows = 7;
  for (const DType type : block_types()) {
    SCOPED_TRACE(std::string(dtype_name(type)));
    const int64_t block = format_of(type).block_columns;
    const Shape shape = {kRows, 3 * block};
    const std::vector<std::byte> bytes = random_blocks(type, shape, false, 3);
    const DeviceArray<std::byte> device(bytes);
    const TensorView whole{.data = bytes.data(), .dtype = type, .shape = shape};
    for (const TensorView& here :
         {whole, columns_between(rows_between(whole, 2, 6), block, 3 * block - 5)}) {
      TensorView there = here;
      there.data = device.data() + (here.data - bytes.data());
      const std::vector<float> numbers = testing_formats::expanded(here);
      const DeviceArray<uint16_t> halves(numbers.size());
      const DeviceArray<float> floats(numbers.size());
      const cuda::FormatKernel* kernel = cuda::format_kernel(type);
      kernel->expand(context(), reinterpret_cast<__nv_bfloat16*>(halves.data()), there);
      kernel->expand_floats(context(), floats.data(), there);
      const std::vector<uint16_t> rounded = halves.download();
      const std::vector<float> exact = floats.download();
      for (size_t i = 0; i < numbers.size(); ++i) {
        ASSERT_TRUE(is_rounded(rounded[i], numbers[i])) << i << ": " << numbers[i];
        if (std::isnan(numbers[i])) {
          ASSERT_TRUE(std::isnan(exact[i])) << i;
        } else {
          ASSERT_EQ(std::bit_cast<uint32_t>(exact[i]), std::bit_cast<uint32_t>(numbers[i]))
              << i << ": " << exact[i] << " for " << numbers[i];
        }
      }
    }
  }
}

// Products with a matrix of this many outputs, and columns in blocks less some at the end: few rows
// by warps or tiles, more by expanding the weights first.
TEST_F(GpuBlocks, ProductsAreThoseOfTheReference) {
  struct Outline {
    int64_t outputs;
    int64_t blocks;
    int64_t cut;
  };
  for (const DType type : block_types()) {
    for (const Outline& outline : {Outline{70, 5, 0}, Outline{300, 3, 0}, Outline{300, 2, 5}}) {
      SCOPED_TRACE(std::string(dtype_name(type)));
      const Shape shape = {outline.outputs, outline.blocks * format_of(type).block_columns};
      const int64_t columns = shape[1] - outline.cut;
      const std::vector<std::byte> bytes = random_blocks(type, shape, true, 5);
      const DeviceArray<std::byte> device(bytes);
      const TensorView whole{.data = bytes.data(), .dtype = type, .shape = shape};
      const TensorView here = columns_between(whole, 0, columns);
      TensorView there = here;
      there.data = device.data();
      constexpr std::array<int64_t, 9> kRows = {1, 2, 3, 4, 5, 16, 17, 32, 33};
      constexpr std::array kPrecisions = {Precision::f32, Precision::two_bf16, Precision::bf16};
      expect_reference_products(here, there, kRows, kPrecisions);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(GpuBlocks, RowsOfATableAreThoseOfTheCpu) {
  for (const DType type : block_types()) {
    SCOPED_TRACE(std::string(dtype_name(type)));
    const Shape shape = {9, 2 * format_of(type).block_columns};
    const std::vector<std::byte> bytes = random_blocks(type, shape, true, 11);
    const DeviceArray<std::byte> device(bytes);
    const TensorView here{.data = bytes.data(), .dtype = type, .shape = shape};
    TensorView there = here;
    there.data = device.data();
    ASSERT_NO_FATAL_FAILURE(expect_rows_of_table(here, there, std::array<TokenId, 4>{8, 0, 3, 3}));
  }
}

}  // namespace
}  // namespace klotski
