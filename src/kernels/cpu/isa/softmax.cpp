#include "kernels/cpu/isa/exponential.h"
#include "kernels/cpu/isa/kernels_isa.h"

namespace klotski::cpu::KLOTSKI_ISA {

namespace {

constexpr float kNever = -__builtin_inff();

KLOTSKI_INLINE Vector larger(Vector a, Vector b) { return a > b ? a : b; }

// Scales the scores begin .. end - 1 and returns the largest of them and `largest`.
float scale_seen(float* scores, int64_t begin, int64_t end, float scale, float largest) {
  Vector lanes = Vector{} + largest;
  int64_t p = begin;
  for (; p + kLanes <= end; p += kLanes) {
    const Vector scaled = load(scores + p) * scale;
    store(scores + p, scaled);
    lanes = larger(scaled, lanes);
  }
  for (int i = 0; i < kLanes; ++i) largest = lanes[i] > largest ? lanes[i] : largest;
  for (; p < end; ++p) {
    scores[p] *= scale;
    largest = scores[p] > largest ? scores[p] : largest;
  }
  return largest;
}

void hide(float* scores, int64_t begin, int64_t end) {
  for (int64_t p = begin; p < end; ++p) scores[p] = kNever;
}

}  // namespace

// A position that is not seen gets a share of zero and changes nothing, so that a query's result
// does not depend on the queries computed with it.
float softmax(const ScoreRow& row, SoftmaxState& state) {
  float largest = state.largest;
  int64_t hidden = 0;  // positions before it are done
  for (int i = 0; i < 2; ++i) {
    if (row.begin[i] >= row.end[i]) continue;
    hide(row.scores, hidden, row.begin[i]);
    largest = scale_seen(row.scores, row.begin[i], row.end[i], row.scale, largest);
    hidden = row.end[i];
  }
  hide(row.scores, hidden, row.count);
  if (largest == kNever) {  // no position is seen, or only NaN scores are
    for (int64_t p = 0; p < row.count; ++p) {
      if (row.scores[p] != row.scores[p]) state.sum = row.scores[p];
      row.scores[p] = 0.0f;
    }
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
