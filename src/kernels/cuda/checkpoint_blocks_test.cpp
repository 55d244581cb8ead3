// Quantised checkpoints and HQQ on a device against the functions of their formats and the
// reference's products.

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "kernels/cuda/formats_cuda.h"
#include "kernels/cuda/testing.h"
#include "tensor/checkpoint_formats.h"
#include "tensor/half.h"
#include "tensor/hqq.h"
#include "tensor/testing.h"

namespace klotski {
namespace {

// All types of checkpoints and of HQQ that stay what they are in memory.
std::vector<DType> types() {
  std::vector<DType> found;
  for (const CheckpointFormat& row : checkpoint_formats()) {
    if (row.method == CheckpointMethod::mxfp4) continue;
    for (const DType type : checkpoint_types(row.method, row.group)) {
      if (&format_of(type) == &row.format) found.push_back(type);
    }
  }
  for (const int bits : {4, 3}) {
    for (const int64_t group : {32, 64, 128}) found.push_back(hqq_type(bits, group));
  }
  return found;
}

std::vector<std::byte> random_bytes(size_t count, std::mt19937_64& random) {
  std::vector<std::byte> bytes(count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

// Scales between 2^-4 and 2^-3; their side tensor begins where no element of it is aligned.
std::vector<std::byte> random_scales(DType type, size_t count, std::mt19937_64& random) {
  std::uniform_real_distribution<float> sizes(0.0625f, 0.125f);
  std::vector<std::byte> bytes(1);
  for (size_t i = 0; i < count; ++i) {
    const float scale = sizes(random);
    const uint16_t half = type == DType::F16 ? float_to_f16(scale) : float_to_bf16(scale);
    const auto* from = type == DType::F32 ? reinterpret_cast<const std::byte*>(&scale)
                                          : reinterpret_cast<const std::byte*>(&half);
    bytes.insert(bytes.end(), from, from + bytes_per_element(type));
  }
  return bytes;
}

// A matrix of random numbers here and on the device.
class TwoMatrices {
 public:
  TwoMatrices(DType type, const Shape& shape, unsigned seed)
      : here_{.data = nullptr, .dtype = type, .shape = shape} {
    std::mt19937_64 random(seed);
    const WeightFormat& format = format_of(type);
    if (format.pack != nullptr) {
      pack(format, random);
    } else {
      numbers_ = random_bytes(static_cast<size_t>(stored_parts(type, shape).front().bytes), random);
      if (format.file_type == DType::F8_E4M3) {  // of its codes two are no numbers
        for (std::byte& code : numbers_) {
          if ((code & std::byte{0x7F}) == std::byte{0x7F}) code = std::byte{0x30};
        }
      }
    }
    for (const SideTensor& side : format.sides) {
      size_t count = 1;
      for (const int64_t size : side.shape(shape)) count *= static_cast<size_t>(size);
      const bool scales = side.dtype != DType::I32;
      sides_.push_back(scales ? random_scales(side.dtype, count, random)
                              : random_bytes(4 * count, random));
      device_sides_.emplace_back(std::span<const std::byte>(sides_.back()));
      here_.sides[sides_.size() - 1] = sides_.back().data() + (scales ? 1 : 0);
    }
    device_numbers_.emplace(std::span<const std::byte>(numbers_));
    here_.data = numbers_.data();
  }

  const TensorView& here() const { return here_; }
  // `view`, a part of the matrix here, as the device has it.
  TensorView there(TensorView view) const {
    view.data = device_numbers_->data() + (view.data - numbers_.data());
    for (size_t i = 0; i < sides_.size(); ++i) {
      view.sides[i] = device_sides_[i].data() + (view.sides[i] - sides_[i].data());
    }
    return view;
  }

 private:
  void pack(const WeightFormat& format, std::mt19937_64& random) {
    std::normal_distribution<float> values(0.0f, 0.05f);
    std::vector<float> row(static_cast<size_t>(here_.shape[1]));
    const auto bytes = static_cast<size_t>(format.row_bytes(here_.shape[1]));
    numbers_.resize(bytes * static_cast<size_t>(here_.shape[0]));
    for (int64_t r = 0; r < here_.shape[0]; ++r) {
      for (float& value : row) value = values(random);
      ASSERT_TRUE(format.pack(reinterpret_cast<const std::byte*>(row.data()), here_.shape[1],
                              numbers_.data() + static_cast<size_t>(r) * bytes));
    }
  }

  TensorView here_;
  std::vector<std::byte> numbers_;
  std::vector<std::vector<std::byte>> sides_;
  std::optional<DeviceArray<std::byte>> device_numbers_;
  std::vector<DeviceArray<std::byte>> device_sides_;
};

class GpuCheckpoints : public GpuTest {
 protected:
  const cuda::Context& context() const {
    return static_cast<const cuda::CudaProcessor&>(gpu_processor()).context();
  }
};

// A matrix of two groups of the widest kind and some columns more, where a format has these.
Shape shape_of(DType type, int64_t rows) {
  const WeightFormat& format = format_of(type);
  return {rows, format.pads_last_block ? 300 : 296};
}

TEST_F(GpuCheckpoints, ExpandToTheNumbersOfTheCpu) {
  for (const DType type : types()) {
    SCOPED_TRACE(std::string(dtype_name(type)));
    const TwoMatrices matrix(type, shape_of(type, 144), 3);
    const TensorView part =
        columns_between(rows_between(matrix.here(), 3, 140), 64, matrix.here().columns());
    for (const TensorView& here : {matrix.here(), part}) {
      const TensorView there = matrix.there(here);
      const std::vector<float> numbers = testing_formats::expanded(here);
      const DeviceArray<uint16_t> halves(numbers.size());
      const DeviceArray<float> floats(numbers.size());
      const cuda::FormatKernel* kernel = cuda::format_kernel(type);
      kernel->expand(context(), reinterpret_cast<__nv_bfloat16*>(halves.data()), there);
      kernel->expand_floats(context(), floats.data(), there);
      const std::vector<uint16_t> rounded = halves.download();
      const std::vector<float> exact = floats.download();
      for (size_t i = 0; i < numbers.size(); ++i) {
        ASSERT_EQ(rounded[i], float_to_bf16(numbers[i])) << i << ": " << numbers[i];
        ASSERT_EQ(std::bit_cast<uint32_t>(exact[i]), std::bit_cast<uint32_t>(numbers[i]))
            << i << ": " << exact[i] << " for " << numbers[i];
      }
    }
  }
}

TEST_F(GpuCheckpoints, ProductsAreThoseOfTheReference) {
  for (const DType type : types()) {
    SCOPED_TRACE(std::string(dtype_name(type)));
    const TwoMatrices matrix(type, shape_of(type, 136), 5);
    constexpr std::array<int64_t, 5> kRows = {1, 3, 4, 5, 33};
    constexpr std::array kPrecisions = {Precision::f32, Precision::bf16};
    const TensorView& here = matrix.here();
    expect_reference_products(here, matrix.there(here), kRows, kPrecisions);
    if (HasFatalFailure()) return;
  }
}

TEST_F(GpuCheckpoints, RowsOfATableAreThoseOfTheCpu) {
  for (const DType type : types()) {
    SCOPED_TRACE(std::string(dtype_name(type)));
    const TwoMatrices matrix(type, shape_of(type, 16), 11);
    const TensorView& here = matrix.here();
    ASSERT_NO_FATAL_FAILURE(
        expect_rows_of_table(here, matrix.there(here), std::array<TokenId, 4>{15, 0, 3, 3}));
  }
}

}  // namespace
}  // namespace klotski
