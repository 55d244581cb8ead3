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
            const TensorView& bias, Precision precision);
void experts(const Machine& with, std::span<const ExpertProduct> products, Precision precision);
ElementOrder arrange(const Machine& with, std::byte* data, DType dtype, const Shape& shape,
                     Precision precision);
inline constexpr int64_t kBlockQueries = 64;  // computed together, at most
inline constexpr int64_t kChunk = 512;        // positions scored before their values are mixed
void attention(const Machine& with, std::span<const AttentionArguments> sequences);

// Row by row, many rows at once.
void rms_norm(const Machine& with, Rows out, ConstRows in, const TensorView& weight, float epsilon);
void combine(const Machine& with, Rows out, ConstRows slots_in, std::span<const float> weights);
void most_likely(const Machine& with, std::span<TokenId> tokens, ConstRows logits);

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
