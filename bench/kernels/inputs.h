#pragma once

// Inputs of the measured operations: random numbers, weights from memory that no cache holds.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/cpu/cpu_processor.h"
#include "kernels/ops.h"
#include "tensor/tensor_view.h"

namespace klotski::bench {

// The processor of the benchmarks: all processors of this process, the fastest instructions.
const CpuProcessor& processor();

// A GiB, or a quarter of the free memory where that is less, in pages as large as the engine's.
// Every 16 bits are a number in bf16 and in f16, every 32 one in float32. The numbers have moderate
// size, half of them are negative.
std::span<const std::byte> random_memory();

// A tensor from random_memory(): each call gives the next bytes, from the beginning again after the
// end, so that none was read lately.
TensorView next_weights(DType type, int64_t rows, int64_t columns);

// Activations: `count` rows of `width` numbers with mean 0 and deviation 1.
class Activations {
 public:
  Activations(int64_t count, int64_t width);
  Rows rows() { return {values_.data(), count_, width_}; }
  // `count` rows from row `begin` on.
  Rows rows(int64_t begin, int64_t count) {
    return {values_.data() + begin * width_, count, width_};
  }

 private:
  int64_t count_;
  int64_t width_;
  std::vector<float> values_;
};

}  // namespace klotski::bench
