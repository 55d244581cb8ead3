// Loops over single rows.

#include "kernels/cpu/isa/exponential.h"
#include "kernels/cpu/isa/kernels_isa.h"

namespace klotski::cpu::KLOTSKI_ISA {

namespace {

KLOTSKI_INLINE Vector sigmoid(Vector x) { return 1.0f / (1.0f + exponential(-x)); }

KLOTSKI_INLINE Vector silu(Vector x) { return x * sigmoid(x); }

// x / 2 * (1 + tanh(u)) is x * sigmoid(2 u).
KLOTSKI_INLINE Vector gelu_tanh(Vector x) {
  return x * sigmoid(1.5957691216057308f * (x + 0.044715f * x * x * x));
}

// NaN stays NaN.
KLOTSKI_INLINE Vector relu(Vector x) {
  return reinterpret_cast<Vector>(reinterpret_cast<Words>(x) & ~reinterpret_cast<Words>(x <= 0.0f));
}

// Where a lane of x is above the limit, the limit; NaN stays NaN.
KLOTSKI_INLINE Vector at_most(Vector x, float limit) {
  const Words above = reinterpret_cast<Words>(x > limit);
  return reinterpret_cast<Vector>((reinterpret_cast<Words>(x) & ~above) |
                                  (reinterpret_cast<Words>(Vector{} + limit) & above));
}

// values = function(values, up)
template <typename Function>
KLOTSKI_INLINE void join_by(float* values, const float* up, int64_t count,
                            const Function& function) {
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    store(values + i, function(load(values + i), load(up + i)));
  }
  const int64_t left = count - i;
  if (left > 0) store(values + i, function(load(values + i, left), load(up + i, left)), left);
}

template <typename Function>
KLOTSKI_INLINE void gate_by(float* values, const float* up, int64_t count,
                            const Function& function) {
  join_by(
      values, up,
      count, [&](Vector x, Vector u) __attribute__((always_inline)) { return function(x) * u; });
}

}  // namespace

void gate(float* values, const float* up, int64_t count, GateFunction function) {
  switch (function) {
    case GateFunction::silu:
      return gate_by(
          values, up, count, [](Vector x) __attribute__((always_inline)) { return silu(x); });
    case GateFunction::gelu_tanh:
      return gate_by(
          values, up, count, [](Vector x) __attribute__((always_inline)) { return gelu_tanh(x); });
    case GateFunction::relu:
      return gate_by(
          values, up, count, [](Vector x) __attribute__((always_inline)) { return relu(x); });
    case GateFunction::sigmoid:
      return gate_by(
          values, up, count, [](Vector x) __attribute__((always_inline)) { return sigmoid(x); });
  }
}

void clamped_swiglu(float* values, const float* up, int64_t count, float slope, float limit) {
  join_by(
      values, up, count, [&](Vector x, Vector u) __attribute__((always_inline)) {
        const Vector g = at_most(x, limit);
        return g * sigmoid(slope * g) * (-at_most(-at_most(u, limit), limit) + 1.0f);
      });
}

void scale(float* values, int64_t count, float factor) {
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) store(values + i, load(values + i) * factor);
  for (; i < count; ++i) values[i] *= factor;
}

float sum_of_squares(const float* values, int64_t count) {
  constexpr int kChains = 4;  // hide the latency of an addition
  Vector sums[kChains] = {};
  int64_t i = 0;
  for (; i + kChains * kLanes <= count; i += kChains * kLanes) {
    for (int c = 0; c < kChains; ++c) {
      const Vector value = load(values + i + c * kLanes);
      sums[c] = multiply_add(sums[c], value, value);
    }
  }
  for (; i < count; i += kLanes) {
    const Vector value = load(values + i, count - i < kLanes ? count - i : kLanes);
    sums[0] = multiply_add(sums[0], value, value);
  }
  return sum((sums[0] + sums[1]) + (sums[2] + sums[3]));
}

}  // namespace klotski::cpu::KLOTSKI_ISA
