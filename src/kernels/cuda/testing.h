#pragma once

// Helpers of the tests on a device: one processor for tests that do not care how it was made.

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "device/device.h"
#include "kernels/cpu/testing.h"
#include "kernels/cuda_processor.h"
#include "kernels/ops.h"
#include "tensor/testing.h"

namespace klotski {

inline constexpr uint64_t kTestArenaBytes = uint64_t{2} << 30;

// A processor of device 0 with an arena of its own.
class GpuProcessor {
 public:
  explicit GpuProcessor(uint64_t arena_bytes = kTestArenaBytes)
      : device_(open_device(0)),
        memory_(device_->allocate(arena_bytes)),
        processor_(make_cuda_processor(*device_)),
        arena_(std::in_place, *processor_, std::span(memory_, arena_bytes)) {}
  ~GpuProcessor() {
    arena_.reset();
    device_->release(memory_);
  }
  GpuProcessor(const GpuProcessor&) = delete;
  GpuProcessor& operator=(const GpuProcessor&) = delete;

  const Processor& ops() const { return *processor_; }

 private:
  std::unique_ptr<Device> device_;
  std::byte* memory_;
  std::unique_ptr<const Processor> processor_;
  std::optional<ArenaUse> arena_;
};

// One for all tests. Never destroyed: the driver may be gone before static objects are.
inline const Processor& gpu_processor() {
  static const auto* const kMade = new GpuProcessor();
  return kMade->ops();
}

class GpuTest : public ::testing::Test {
 public:
  static const Processor& ops() { return gpu_processor(); }

 protected:
  void SetUp() override {
    static const DeviceList list = list_devices();
    if (list.devices.empty()) GTEST_SKIP() << list.why_none;
  }
};

// Values in the memory of the operations.
template <typename T>
class DeviceArray {
 public:
  // Every byte 0xFF: a float that nobody wrote is no number, an index is -1.
  explicit DeviceArray(size_t count) : DeviceArray(count, nullptr) {
    const std::vector<std::byte> poison(bytes(), std::byte{0xFF});
    gpu_processor().memory.upload(memory_, poison.data(), bytes());
  }
  explicit DeviceArray(std::span<const T> values) : DeviceArray(values.size(), nullptr) {
    gpu_processor().memory.upload(memory_, values.data(), bytes());
  }
  ~DeviceArray() {
    if (memory_) gpu_processor().memory.give_back(memory_, bytes());
  }
  DeviceArray(DeviceArray&& other) noexcept
      : count_(std::exchange(other.count_, 0)), memory_(std::exchange(other.memory_, nullptr)) {}
  DeviceArray& operator=(DeviceArray&&) = delete;

  T* data() const { return reinterpret_cast<T*>(memory_); }
  size_t size() const { return count_; }
  std::span<T> span() const { return {data(), count_}; }

  std::vector<T> download() const {
    std::vector<T> values(count_);
    gpu_processor().memory.download(values.data(), memory_, bytes());
    return values;
  }

 private:
  DeviceArray(size_t count, std::nullptr_t)
      : count_(count), memory_(gpu_processor().memory.take(count * sizeof(T))) {}
  uint64_t bytes() const { return count_ * sizeof(T); }

  size_t count_;
  std::byte* memory_;
};

// A copy on the device of a tensor in the program's memory.
class DeviceTensor {
 public:
  explicit DeviceTensor(const Weights& weights) : bytes_(weights.bytes), view_(weights.view) {
    view_.data = bytes_.data();
  }
  const TensorView& view() const { return view_; }

 private:
  DeviceArray<std::byte> bytes_;
  TensorView view_;
};

// An output between guards that nobody may write to; its rows begin as NaNs.
class DeviceOutput {
 public:
  DeviceOutput(int64_t rows, int64_t width)
      : rows_(rows), width_(width), floats_(static_cast<size_t>(rows * width + 2 * kGuard)) {}

  Rows rows() const { return {floats_.data() + kGuard, rows_, width_}; }

  // Fails where a guard was written to.
  std::vector<float> download() const {
    const std::vector<float> all = floats_.download();
    const std::vector<float> guard(kGuard, all_ones());
    EXPECT_TRUE(same_bits(std::span(all).first(kGuard), guard)) << "written before the output";
    EXPECT_TRUE(same_bits(std::span(all).last(kGuard), guard)) << "written behind the output";
    return {all.begin() + kGuard, all.end() - kGuard};
  }

 private:
  static constexpr int64_t kGuard = 64;
  static float all_ones() {
    const uint32_t bits = 0xFFFFFFFFu;
    float value;
    std::memcpy(&value, &bits, sizeof(value));
    return value;
  }

  int64_t rows_;
  int64_t width_;
  DeviceArray<float> floats_;
};

// Fails where products with a packed matrix on the device, `there`, are not the reference's with
// its bytes in the program's memory, `here`: for each number of rows of random inputs, each
// precision.
inline void expect_reference_products(const TensorView& here, const TensorView& there,
                                      std::span<const int64_t> row_counts,
                                      std::span<const Precision> precisions) {
  const int64_t outputs = here.rows();
  const int64_t columns = here.columns();
  const Weights sizes(absolute(testing_formats::expanded(here)), DType::F32, {outputs, columns});
  for (const int64_t rows : row_counts) {
    const std::vector<float> x = random_floats(rows * columns, 1);
    const std::vector<float> x_sizes = absolute(x);
    const DeviceArray<float> in{std::span<const float>(x)};
    const auto product = [&](const std::vector<float>& rows_of, const TensorView& weight) {
      std::vector<float> result(static_cast<size_t>(rows * outputs));
      reference_processor().matmul({result.data(), rows, outputs}, {rows_of.data(), rows, columns},
                                   weight, {}, Precision::f32);
      return result;
    };
    for (const Precision precision : precisions) {
      const DeviceOutput out(rows, outputs);
      gpu_processor().matmul(out.rows(), {in.data(), rows, columns}, there, {}, precision);
      const double tolerance = precision == Precision::f32 ? 3e-5 : kRoundedInputs;
      expect_close(out.download(), product(x, here), product(x_sizes, sizes.view), tolerance);
      if (::testing::Test::HasFatalFailure()) return;
    }
  }
}

// Fails where rows of a packed table on the device, `there`, are not those that its bytes in the
// program's memory, `here`, expand to.
inline void expect_rows_of_table(const TensorView& here, const TensorView& there,
                                 std::span<const TokenId> tokens) {
  const DeviceArray<TokenId> list{tokens};
  const DeviceOutput out(std::ssize(tokens), here.columns());
  gpu_processor().embed(out.rows(), there, {list.data(), tokens.size()});
  const std::vector<float> found = out.download();
  const std::vector<float> numbers = testing_formats::expanded(here);
  const auto width = static_cast<size_t>(here.columns());
  for (size_t i = 0; i < found.size(); ++i) {
    ASSERT_EQ(found[i], numbers[static_cast<size_t>(tokens[i / width]) * width + i % width]) << i;
  }
}

}  // namespace klotski
