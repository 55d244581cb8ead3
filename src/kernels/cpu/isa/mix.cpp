// Sums of rows by weights of their own: values of attention by their shares of the softmax, rows of
// a matrix by the numbers that multiply them.

#include "kernels/cpu/isa/kernels_isa.h"
#include "kernels/cpu/isa/vector.h"

namespace klotski::cpu::KLOTSKI_ISA {

namespace {

// `kRows` rows, `kVectors` vectors of columns from `column` on. `at`, `get` and `put` load values,
// load and store one vector of the output.
template <int kRows, int kVectors, typename Value, typename At, typename Get, typename Put>
KLOTSKI_INLINE void mix_tile(const Mix& mix, int64_t row, int64_t column, const Value* values,
                             const At& at, const Get& get, const Put& put) {
  Vector sums[kRows][kVectors];
  KLOTSKI_UNROLL
  for (int r = 0; r < kRows; ++r) {
    KLOTSKI_UNROLL
    for (int v = 0; v < kVectors; ++v) sums[r][v] = get(mix.out[row + r] + column + v * kLanes);
  }
  const float* shares = mix.shares + row * mix.shares_stride;
  const Value* value_row = values + column;
  for (int64_t p = 0; p < mix.positions; ++p, ++shares, value_row += mix.value_stride) {
    KLOTSKI_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      const Vector value = at(value_row + v * kLanes);
      KLOTSKI_UNROLL
      for (int r = 0; r < kRows; ++r) {
        sums[r][v] = multiply_add(sums[r][v], value, Vector{} + shares[r * mix.shares_stride]);
      }
    }
  }
  KLOTSKI_UNROLL
  for (int r = 0; r < kRows; ++r) {
    KLOTSKI_UNROLL
    for (int v = 0; v < kVectors; ++v) put(mix.out[row + r] + column + v * kLanes, sums[r][v]);
  }
}

template <int kRows, typename Value>
void mix_rows(const Mix& mix, int64_t row, const Value* values) {
  constexpr int kVectors = kTileOutputs;
  const auto at = [](const Value* data) __attribute__((always_inline)) { return load(data); };
  const auto get = [](const float* data) __attribute__((always_inline)) { return load(data); };
  const auto put = [](float* data, Vector value) __attribute__((always_inline)) {
    store(data, value);
  };
  int64_t column = 0;
  for (; column + kVectors * kLanes <= mix.width; column += kVectors * kLanes) {
    mix_tile<kRows, kVectors>(mix, row, column, values, at, get, put);
  }
  for (; column + kLanes <= mix.width; column += kLanes) {
    mix_tile<kRows, 1>(mix, row, column, values, at, get, put);
  }
  const int64_t left = mix.width - column;
  if (left == 0) return;
  mix_tile<kRows, 1>(
      mix, row, column, values, [left](const Value* data) { return load(data, left); },
      [left](const float* data) { return load(data, left); },
      [left](float* data, Vector value) { store(data, value, left); });
}

template <typename Value>
void mix_values(const Mix& mix, const Value* values) {
  int64_t row = 0;
  for (; row + kTileRows <= mix.rows; row += kTileRows) mix_rows<kTileRows>(mix, row, values);
  for (; row < mix.rows; ++row) mix_rows<1>(mix, row, values);
}

}  // namespace

void mix(const Mix& mix) {
  switch (mix.type) {
    case WeightType::f32:
      return mix_values(mix, static_cast<const float*>(mix.values));
    case WeightType::f16:
      return mix_values(mix, static_cast<const F16*>(mix.values));
    case WeightType::bf16:
      return mix_values(mix, static_cast<const Bf16*>(mix.values));
  }
}

}  // namespace klotski::cpu::KLOTSKI_ISA
