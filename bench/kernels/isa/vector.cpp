// Float32 products and reads by the vectors that the kernels of this instruction set use.

#include "kernels/cpu/isa/vector.h"

#include "loops.h"

KLOTSKI_DECLARE_MULTIPLY(KLOTSKI_ISA, f32)
KLOTSKI_DECLARE_READ(KLOTSKI_ISA)

namespace klotski::bench::KLOTSKI_ISA {

namespace {

using cpu::KLOTSKI_ISA::kLanes;
using cpu::KLOTSKI_ISA::load;
using cpu::KLOTSKI_ISA::multiply_add;
using cpu::KLOTSKI_ISA::sum;
using cpu::KLOTSKI_ISA::Vector;

// Enough sums to hide the latency, operands in the remaining registers.
#if defined(__x86_64__) && !defined(__AVX512F__)
constexpr int kRows = 3;
constexpr int kOutputs = 3;
#else
constexpr int kRows = 5;
constexpr int kOutputs = 4;
#endif

constexpr int kReads = 8;  // vectors at a time
static_assert(kReadStep % (kReads * kLanes) == 0);

}  // namespace

int64_t f32(int64_t rounds, float* sink) {
  Vector sums[kRows][kOutputs] = {};
  alignas(64) float numbers[(kRows + kOutputs) * kLanes];
  for (int i = 0; i < (kRows + kOutputs) * kLanes; ++i) {
    numbers[i] = 0.001f * static_cast<float>(i % 7 - 3);
  }
  for (int64_t round = 0; round < rounds; ++round) {
    // The operands may have changed: a product must not be taken out of the loop.
    asm volatile("" ::"r"(numbers) : "memory");
    Vector rows[kRows];
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) rows[r] = load(numbers + r * kLanes);
#pragma GCC unroll 8
    for (int n = 0; n < kOutputs; ++n) {
      const Vector weights = load(numbers + (kRows + n) * kLanes);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) sums[r][n] = multiply_add(sums[r][n], rows[r], weights);
    }
  }
  // Indexed by constants here too: only then are the sums kept in registers.
#pragma GCC unroll 8
  for (int n = 0; n < kOutputs; ++n) {
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) *sink += sum(sums[r][n]);
  }
  return rounds * kRows * kOutputs * kLanes * 2;
}

float read(const float* data, int64_t count) {
  Vector sums[kReads] = {};
  for (int64_t i = 0; i < count; i += kReads * kLanes) {
#pragma GCC unroll 8
    for (int v = 0; v < kReads; ++v) sums[v] += load(data + i + v * kLanes);
  }
  float all = 0.0f;
#pragma GCC unroll 8
  for (int v = 0; v < kReads; ++v) all += sum(sums[v]);
  return all;
}

}  // namespace klotski::bench::KLOTSKI_ISA
