#pragma once

// An expert with weights of its own, and the checks of its results.

#include <span>
#include <vector>

#include "kernels/cpu/testing.h"
#include "kernels/reference/reference_processor.h"
#include "kernels/reference/weight_row.h"

namespace klotski {

struct ExpertShape {
  int64_t in, width, out;
};

struct Expert {
  Weights gate;
  Weights up;
  Weights down;

  Expert(const ExpertShape& s, DType first, DType second, unsigned seed)
      : gate(random_floats(s.width * s.in, seed), first, {s.width, s.in}),
        up(random_floats(s.width * s.in, seed + 1), first, {s.width, s.in}),
        down(random_floats(s.out * s.width, seed + 2), second, {s.out, s.width}) {}

  ExpertProduct product(Rows to, ConstRows from, Activation activation = Activation::silu) const {
    return {.out = to,
            .in = from,
            .out_rows = {},
            .in_rows = {},
            .gate = gate.view,
            .up = up.view,
            .down = down.view,
            .activation = activation};
  }
};

// Biases of an expert, in any type.
struct ExpertBiases {
  Weights gate;
  Weights up;
  Weights down;

  ExpertBiases(const ExpertShape& s, DType dtype, unsigned seed)
      : gate(random_floats(s.width, seed), dtype, {s.width}),
        up(random_floats(s.width, seed + 1), dtype, {s.width}),
        down(random_floats(s.out, seed + 2), dtype, {s.out}) {}
};

// sum over k of |row[k] * weights[n][k]|
inline double magnitude(std::span<const float> row, const TensorView& weights, int64_t n) {
  double sum = 0.0;
  for (size_t k = 0; k < row.size(); ++k) {
    sum += std::fabs(double(row[k]) *
                     double(reference::load_element(weights, n * weights.columns() + int64_t(k))));
  }
  return sum;
}

inline double to_bf16(double value) { return rounded_to_bf16(static_cast<float>(value)); }

// The row that an expert makes of another, and how far each output may be off: the errors of the
// first two products go through the third.
struct ExpectedRow {
  std::vector<float> out;
  std::vector<float> tolerances;

  ExpectedRow(const Expert& expert, std::span<const float> in, Activation activation,
              Precision precision) {
    const auto width = static_cast<size_t>(expert.gate.view.rows());
    const auto outputs = static_cast<size_t>(expert.down.view.rows());
    const ConstRows row(in.data(), 1, static_cast<int64_t>(in.size()));
    std::vector<float> gated(width);
    std::vector<float> up(width);
    const Rows gated_row = {gated.data(), 1, expert.gate.view.rows()};
    const Rows up_row = {up.data(), 1, expert.gate.view.rows()};
    reference_processor().matmul(gated_row, row, expert.gate.view, {}, precision);
    reference_processor().matmul(up_row, row, expert.up.view, {}, precision);
    const std::vector<float> gates = gated;
    reference::gate(gated_row, up_row, activation);
    out.resize(outputs);
    const ExpertProduct product =
        expert.product({out.data(), 1, static_cast<int64_t>(outputs)}, row, activation);
    reference_processor().experts(std::span(&product, 1), precision);

    const bool rounding = precision == Precision::bf16 && expert.down.view.dtype == DType::BF16;
    std::vector<float> errors(width);
    for (size_t i = 0; i < width; ++i) {
      // No activation is steeper than 1.2, nor larger than its argument.
      const double error =
          kSameInputs * (1.2 * magnitude(in, expert.gate.view, int64_t(i)) * std::fabs(up[i]) +
                         magnitude(in, expert.up.view, int64_t(i)) * std::fabs(gates[i]));
      // Near the middle between two bf16 numbers either may be taken.
      errors[i] = static_cast<float>(
          rounding ? to_bf16(gated[i] + error) - to_bf16(gated[i] - error) : error);
    }
    for (size_t n = 0; n < outputs; ++n) {
      tolerances.push_back(
          static_cast<float>(kSameInputs * magnitude(gated, expert.down.view, int64_t(n)) +
                             magnitude(errors, expert.down.view, int64_t(n))));
    }
  }
};

}  // namespace klotski
