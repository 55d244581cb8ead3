#include "neural/attention.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace klotski::neural {

namespace {

float scale_of(int64_t columns) { return 1 / std::sqrt(static_cast<float>(columns)); }

// Turns the first `seen` scores into shares that add up to 1, the others into 0.
void softmax(std::span<float> scores, int64_t seen, float scale) {
  const auto end = scores.begin() + seen;
  const float most = *std::max_element(scores.begin(), end);
  float sum = 0;
  for (auto it = scores.begin(); it != end; ++it) sum += * it = std::exp(scale * (*it - most));
  for (auto it = scores.begin(); it != end; ++it) *it /= sum;
  std::fill(end, scores.end(), 0.0f);
}

// Turns the gradient of a query's shares into that of its scores.
void softmax_backward(std::span<float> gradient, std::span<const float> shares, float scale) {
  float mean = 0;
  for (size_t j = 0; j < shares.size(); ++j) mean += shares[j] * gradient[j];
  for (size_t j = 0; j < shares.size(); ++j) gradient[j] = shares[j] * (gradient[j] - mean) * scale;
}

}  // namespace

Attention::Unit Attention::unit(int64_t index, int64_t width) const {
  const AttendBlock& block = options_.blocks[static_cast<size_t>(index / options_.heads)];
  const int64_t columns = width / options_.heads;
  const int64_t first = index % options_.heads * columns;
  return {.queries = {block.first_query, block.queries, first, columns},
          .keys = {block.first_key, block.keys, first, columns}};
}

Matrix Attention::forward(const Matrix& queries, const Matrix& keys, const Matrix& values) {
  Matrix out(queries.rows, queries.columns);
  shares_.resize(static_cast<size_t>(units()));
  share_out(pool_, units(), [&](int64_t begin, int64_t end) {
    for (int64_t u = begin; u < end; ++u) {
      const Unit at = unit(u, queries.columns);
      Matrix shares(at.queries.rows, at.keys.rows);
      add_product(view(shares), view(queries, at.queries), view(keys, at.keys).transposed());
      for (int64_t i = 0; i < shares.rows; ++i) {
        const int64_t seen =
            options_.causal ? shares.columns - shares.rows + i + 1 : shares.columns;
        softmax(shares.row_span(i), seen, scale_of(at.keys.columns));
      }
      add_product(view(out, at.queries), view(std::as_const(shares)), view(values, at.keys));
      shares_[static_cast<size_t>(u)] = std::move(shares);
    }
  });
  return out;
}

void Attention::backward(const Inputs& inputs, const Matrix& gradient,
                         const Gradients& gradients) const {
  share_out(pool_, units(), [&](int64_t begin, int64_t end) {
    for (int64_t u = begin; u < end; ++u) {
      const Unit at = unit(u, gradient.columns);
      const Matrix& shares = shares_[static_cast<size_t>(u)];
      const auto back = view(gradient, at.queries);
      add_product(view(gradients.values, at.keys), view(shares).transposed(), back);
      Matrix of_scores(shares.rows, shares.columns);
      add_product(view(of_scores), back, view(inputs.values, at.keys).transposed());
      for (int64_t i = 0; i < shares.rows; ++i) {
        softmax_backward(of_scores.row_span(i), shares.row_span(i), scale_of(at.keys.columns));
      }
      const auto scores = view(std::as_const(of_scores));
      add_product(view(gradients.queries, at.queries), scores, view(inputs.keys, at.keys));
      add_product(view(gradients.keys, at.keys), scores.transposed(),
                  view(inputs.queries, at.queries));
    }
  });
}

}  // namespace klotski::neural
