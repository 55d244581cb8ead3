#pragma once

// The fast operations: rows, outputs or heads shared out to the compute threads. What an element's
// value is never depends on how.

#include "base/thread_pool.h"
#include "kernels/cpu/kernels.h"
#include "kernels/ops.h"

namespace klotski::cpu {

// What an operation runs with; tests bring their own.
struct Machine {
  const Kernels& kernels;
  ThreadPool& pool;
};
Machine& machine();

void matmul(const Machine& with, Rows out, ConstRows in, const TensorView& weight,
            const TensorView& bias);
void attention(const Machine& with, const AttentionArguments& arguments);

// The row-by-row operations of the reference, many rows at once.
void rms_norm(const Machine& with, Rows out, ConstRows in, const TensorView& weight, float epsilon);
void gate(const Machine& with, Rows gate, ConstRows up, Activation activation);
void combine(const Machine& with, Rows out, ConstRows slots_in, std::span<const float> weights);

// Shares out `count` pieces of work of `cost` multiplications each, or does it at once where
// waking others would take longer.
template <typename Body>
void share_out(const Machine& with, int64_t count, int64_t cost, const Body& body) {
  constexpr int64_t kWorthSharing = 1 << 17;  // about 5 microseconds
  if (count * cost < kWorthSharing) {
    body(0, count);
  } else {
    with.pool.parallel_for(count, body);
  }
}

}  // namespace klotski::cpu
