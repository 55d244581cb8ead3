// Processors of a device as objects: each is its own, however many there are.

#include "kernels/cuda_processor.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "base/error.h"
#include "kernels/cuda/testing.h"

namespace klotski {
namespace {

constexpr uint64_t kArenaBytes = uint64_t{256} << 20;
constexpr int64_t kRows = 24;
constexpr int64_t kWidth = 512;

class CudaProcessors : public GpuTest {};

// A product, begun but not waited for, in the memory of one processor.
class Product {
 public:
  explicit Product(const Processor& ops)
      : memory_(ops.memory),
        in_(floats(kRows * kWidth, 1)),
        weight_(floats(kWidth * kWidth, 2)),
        out_(memory_.take(kBytes)) {
    ops.matmul({reinterpret_cast<float*>(out_), kRows, kWidth},
               {reinterpret_cast<const float*>(in_), kRows, kWidth},
               {weight_, DType::F32, {kWidth, kWidth}}, {}, Precision::f32);
  }
  ~Product() {
    memory_.give_back(in_, kBytes);
    memory_.give_back(weight_, kWidth * kWidth * sizeof(float));
    memory_.give_back(out_, kBytes);
  }
  Product(const Product&) = delete;
  Product& operator=(const Product&) = delete;

  std::vector<float> result() const {
    std::vector<float> values(kRows * kWidth);
    memory_.download(values.data(), out_, kBytes);
    return values;
  }

 private:
  static constexpr uint64_t kBytes = kRows * kWidth * sizeof(float);

  std::byte* floats(int64_t count, unsigned seed) const {
    const std::vector<float> values = random_floats(count, seed);
    std::byte* there = memory_.take(values.size() * sizeof(float));
    memory_.upload(there, values.data(), values.size() * sizeof(float));
    return there;
  }

  ProcessorMemory& memory_;
  std::byte* in_;
  std::byte* weight_;
  std::byte* out_;
};

TEST_F(CudaProcessors, TwoComputeAtTheSameTime) {
  const GpuProcessor one(kArenaBytes);
  const GpuProcessor other(kArenaBytes);
  const std::vector<float> alone = Product(one.ops()).result();
  EXPECT_EQ(Product(other.ops()).result(), alone);
  for (int round = 0; round < 20; ++round) {
    const Product first(one.ops());
    const Product second(other.ops());
    EXPECT_EQ(second.result(), alone);
    EXPECT_EQ(first.result(), alone);
  }
}

TEST_F(CudaProcessors, OutlivesAnother) {
  const GpuProcessor stays(kArenaBytes);
  const std::vector<float> expected = Product(stays.ops()).result();
  for (int i = 0; i < 5; ++i) {
    const Product under_way(stays.ops());
    {
      const GpuProcessor goes(kArenaBytes);
      EXPECT_EQ(Product(goes.ops()).result(), expected);
    }
    EXPECT_EQ(under_way.result(), expected);
  }
}

TEST_F(CudaProcessors, TakesOneArenaAfterTheOther) {
  const std::unique_ptr<Device> device = open_device(0);
  const std::unique_ptr<const Processor> processor = make_cuda_processor(*device);
  EXPECT_GT(processor->scratch_bytes({.rows = 8}), 0u);
  EXPECT_THROW(processor->memory.take(1), Error) << "there is no arena yet";
  std::byte* memory = device->allocate(kArenaBytes);
  const std::span<std::byte> arena(memory, kArenaBytes);
  for (int i = 0; i < 3; ++i) {
    const ArenaUse use(*processor, arena);
    EXPECT_THROW(ArenaUse(*processor, arena), Error) << "it has one";
    EXPECT_EQ(Product(*processor).result(), Product(gpu_processor()).result());
  }
  EXPECT_THROW(ArenaUse(*processor, arena.first(kCudaProductWorkspace - 1)), Error);
  EXPECT_THROW(processor->memory.take(1), Error);
  device->release(memory);
}

}  // namespace
}  // namespace klotski
