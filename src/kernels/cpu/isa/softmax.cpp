#include "kernels/cpu/isa/exponential.h"
#include "kernels/cpu/isa/kernels_isa.h"

namespace klotski::cpu::KLOTSKI_ISA {

namespace {

constexpr float kNever = -__builtin_inff();

bool sees(const ScoreRow& row, int64_t position) {
  return (position >= row.begin[0] && position < row.end[0]) ||
         (position >= row.begin[1] && position < row.end[1]);
}

}  // namespace

// What is not seen gets a share of zero and changes nothing, so that a query's result does not
// depend on which others were computed with it.
float softmax(const ScoreRow& row, SoftmaxState& state) {
  float largest = state.largest;
  for (int64_t p = 0; p < row.count; ++p) {
    row.scores[p] = sees(row, p) ? row.scores[p] * row.scale : kNever;
    largest = row.scores[p] > largest ? row.scores[p] : largest;
  }
  if (largest == kNever) {
    std::memset(row.scores, 0, static_cast<size_t>(row.count) * sizeof(float));
    return 1.0f;
  }
  const Vector shift = Vector{} + largest;
  Vector sums = {};
  int64_t p = 0;
  for (; p + kLanes <= row.count; p += kLanes) {
    const Vector share = exponential(load(row.scores + p) - shift);
    store(row.scores + p, share);
    sums += share;
  }
  for (; p < row.count; ++p) {
    const Vector share = exponential(Vector{} + row.scores[p] - shift);
    row.scores[p] = share[0];
    sums[p % kLanes] += share[0];
  }
  const float factor = exponential(Vector{} + state.largest - shift)[0];
  state.sum = state.sum * factor + sum(sums);
  state.largest = largest;
  return factor;
}

}  // namespace klotski::cpu::KLOTSKI_ISA
