#include "experts/activation_matrix.h"

#include <algorithm>
#include <cmath>

namespace klotski {

ActivationMatrix::ActivationMatrix(const RoutingTraceShape& shape) {
  begin_.push_back(0);
  for (const RoutedLayer& layer : shape.layers) {
    begin_.push_back(begin_.back() + static_cast<size_t>(layer.experts));
  }
  counts_.resize(begin_.back());
}

void ActivationMatrix::count(size_t routed_layer, std::span<const ExpertId> choices) {
  const std::span<float> row = layer(routed_layer);
  for (const ExpertId expert : choices) row[static_cast<size_t>(expert.value)] += 1;
}

void ActivationMatrix::add(const ActivationMatrix& other) {
  for (size_t i = 0; i < counts_.size(); ++i) counts_[i] += other.counts_[i];
}

void ActivationMatrix::clear() { std::fill(counts_.begin(), counts_.end(), 0.0f); }

bool ActivationMatrix::empty() const {
  return std::all_of(counts_.begin(), counts_.end(), [](float count) { return count == 0; });
}

double dot_product(const ActivationMatrix& a, const ActivationMatrix& b, size_t layers) {
  double sum = 0.0;
  for (size_t l = 0; l < layers; ++l) {
    const std::span<const float> row_a = a.layer(l);
    const std::span<const float> row_b = b.layer(l);
    for (size_t e = 0; e < row_a.size(); ++e) sum += double{row_a[e]} * row_b[e];
  }
  return sum;
}

double cosine_distance(double dot, double a_squared, double b_squared) {
  if (a_squared == 0 || b_squared == 0) return 1.0;
  return 1.0 - dot / (std::sqrt(a_squared) * std::sqrt(b_squared));
}

}  // namespace klotski
