// The gated delta rule over some columns of a head's state.

#include "kernels/cpu/isa/kernels_isa.h"
#include "kernels/cpu/isa/vector.h"

namespace klotski::cpu::KLOTSKI_ISA {

namespace {

// `kVectors` vectors of columns from `column` on, which stay in the first-level cache for all
// tokens. `get` and `put` load and store one vector. Sums run over keys in ascending order.
template <int kVectors, typename Get, typename Put>
KLOTSKI_INLINE void update_columns(const DeltaColumns& columns, int64_t column, const Get& get,
                                   const Put& put) {
  float* state = columns.state + column;
  for (int64_t t = 0; t < columns.tokens; ++t) {
    const float* key = columns.key_rows + t * columns.row_stride;
    const float* query = columns.queries + t * columns.row_stride;
    const Vector decay = Vector{} + columns.decays[t * columns.rate_stride];
    const Vector update = Vector{} + columns.updates[t * columns.rate_stride];
    Vector deltas[kVectors] = {};
    for (int64_t i = 0; i < columns.keys; ++i) {
      const float* row = state + i * columns.state_stride;
      KLOTSKI_UNROLL
      for (int v = 0; v < kVectors; ++v) {
        deltas[v] = multiply_add(deltas[v], get(row + v * kLanes) * decay, Vector{} + key[i]);
      }
    }
    const float* value = columns.values + t * columns.row_stride + column;
    KLOTSKI_UNROLL
    for (int v = 0; v < kVectors; ++v) deltas[v] = (get(value + v * kLanes) - deltas[v]) * update;
    Vector sums[kVectors] = {};
    for (int64_t i = 0; i < columns.keys; ++i) {
      float* row = state + i * columns.state_stride;
      KLOTSKI_UNROLL
      for (int v = 0; v < kVectors; ++v) {
        const Vector updated =
            multiply_add(get(row + v * kLanes) * decay, deltas[v], Vector{} + key[i]);
        put(row + v * kLanes, updated);
        sums[v] = multiply_add(sums[v], updated, Vector{} + query[i]);
      }
    }
    float* out = columns.out + t * columns.out_stride + column;
    KLOTSKI_UNROLL
    for (int v = 0; v < kVectors; ++v) put(out + v * kLanes, sums[v]);
  }
}

}  // namespace

void delta_rule(const DeltaColumns& columns) {
  constexpr int kVectors = 4;
  const auto get = [](const float* data) __attribute__((always_inline)) { return load(data); };
  const auto put = [](float* data, Vector value) __attribute__((always_inline)) {
    store(data, value);
  };
  int64_t column = 0;
  for (; column + kVectors * kLanes <= columns.columns; column += kVectors * kLanes) {
    update_columns<kVectors>(columns, column, get, put);
  }
  for (; column + kLanes <= columns.columns; column += kLanes) {
    update_columns<1>(columns, column, get, put);
  }
  const int64_t left = columns.columns - column;
  if (left == 0) return;
  update_columns<1>(
      columns, column, [left](const float* data) { return load(data, left); },
      [left](float* data, Vector value) { store(data, value, left); });
}

}  // namespace klotski::cpu::KLOTSKI_ISA
