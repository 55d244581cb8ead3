#include "model/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace klotski {

namespace {

std::vector<double> plain_frequencies(double base, int64_t dims) {
  std::vector<double> frequencies;
  for (int64_t i = 0; i < dims; i += 2) {
    frequencies.push_back(std::pow(base, -static_cast<double>(i) / static_cast<double>(dims)));
  }
  return frequencies;
}

// The base grows with the sequence beyond the trained context, so that the slowest pair stretches.
std::vector<double> dynamic_frequencies(const Rope& rope, int64_t sequence_length) {
  const auto trained = static_cast<double>(rope.original_positions);
  const double length = std::max(static_cast<double>(sequence_length), trained);
  const auto dims = static_cast<double>(rope.rotated_dims);
  const double growth = rope.factor * length / trained - (rope.factor - 1.0);
  return plain_frequencies(rope.base * std::pow(growth, dims / (dims - 2.0)), rope.rotated_dims);
}

// The pair (as a fraction) that turns `rotations` times within the trained context.
double yarn_boundary(const Rope& rope, double rotations) {
  const auto trained = static_cast<double>(rope.original_positions);
  return static_cast<double>(rope.rotated_dims) *
         std::log(trained / (rotations * 2.0 * std::numbers::pi)) / (2.0 * std::log(rope.base));
}

// Fast pairs keep their frequency, slow ones are divided by the factor, a ramp lies between.
std::vector<double> yarn_frequencies(const Rope& rope) {
  double low = yarn_boundary(rope, rope.beta_fast);
  double high = yarn_boundary(rope, rope.beta_slow);
  if (rope.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(rope.rotated_dims - 1));
  if (low == high) high += 0.001;  // the ramp needs a width

  std::vector<double> frequencies = plain_frequencies(rope.base, rope.rotated_dims);
  for (size_t pair = 0; pair < frequencies.size(); ++pair) {
    const double slow = std::clamp((static_cast<double>(pair) - low) / (high - low), 0.0, 1.0);
    frequencies[pair] *= slow / rope.factor + (1.0 - slow);
  }
  return frequencies;
}

std::vector<double> llama3_frequencies(const Rope& rope) {
  const auto trained = static_cast<double>(rope.original_positions);
  const double low = rope.low_frequency_factor;
  const double high = rope.high_frequency_factor;
  std::vector<double> frequencies = plain_frequencies(rope.base, rope.rotated_dims);
  for (double& frequency : frequencies) {
    const double rotations = trained * frequency / (2.0 * std::numbers::pi);
    const double keep = std::clamp((rotations - low) / (high - low), 0.0, 1.0);
    frequency *= (1.0 - keep) / rope.factor + keep;
  }
  return frequencies;
}

std::vector<double> longrope_frequencies(const Rope& rope, int64_t sequence_length) {
  const std::vector<double>& factors =
      sequence_length > rope.original_positions ? rope.long_factors : rope.short_factors;
  std::vector<double> frequencies = plain_frequencies(rope.base, rope.rotated_dims);
  for (size_t pair = 0; pair < frequencies.size(); ++pair) frequencies[pair] /= factors[pair];
  return frequencies;
}

std::vector<double> exact_frequencies(const Rope& rope, int64_t sequence_length) {
  switch (rope.kind) {
    case RopeKind::plain:
      return plain_frequencies(rope.base, rope.rotated_dims);
    case RopeKind::linear: {
      std::vector<double> frequencies = plain_frequencies(rope.base, rope.rotated_dims);
      for (double& frequency : frequencies) frequency /= rope.factor;
      return frequencies;
    }
    case RopeKind::dynamic:
      return dynamic_frequencies(rope, sequence_length);
    case RopeKind::yarn:
      return yarn_frequencies(rope);
    case RopeKind::llama3:
      return llama3_frequencies(rope);
    case RopeKind::longrope:
      return longrope_frequencies(rope, sequence_length);
  }
  return {};
}

}  // namespace

bool frequencies_depend_on_length(const Rope& rope) {
  return rope.kind == RopeKind::dynamic || rope.kind == RopeKind::longrope;
}

std::vector<float> rope_frequencies(const Rope& rope, int64_t sequence_length) {
  const std::vector<double> exact = exact_frequencies(rope, sequence_length);
  return {exact.begin(), exact.end()};
}

}  // namespace klotski
