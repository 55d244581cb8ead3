#pragma once

#include <benchmark/benchmark.h>

#include "kernels/ops.h"
#include "tensor/dtype.h"

namespace klotski::bench {

// The work of one iteration.
struct Work {
  double f32_operations = 0.0;
  double bf16_operations = 0.0;
  double bytes = 0.0;  // read from memory: weights, or keys and values

  // Products of rows and weights of this type.
  void add_products(double operations, DType type, Precision precision) {
    const bool bf16 = type == DType::BF16 && precision == Precision::bf16;
    (bf16 ? bf16_operations : f32_operations) += operations;
  }
};

// Counters: GFLOP/s and GB/s, and their share of this machine's peak. %peak is of the time that the
// instructions alone would take.
void report(benchmark::State& state, const Work& work);

}  // namespace klotski::bench
