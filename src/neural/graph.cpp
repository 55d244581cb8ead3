#include "neural/graph.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

namespace klotski::neural {

namespace {

constexpr float kNormEpsilon = 1e-6f;

void add_to(Matrix& sum, const Matrix& other) {
  for (size_t i = 0; i < sum.values.size(); ++i) sum.values[i] += other.values[i];
}

}  // namespace

void Graph::over_rows(const Matrix& matrix, const ThreadPool::Body& body) const {
  constexpr size_t kLeastShared = 1 << 13;  // elements
  share_out(matrix.values.size() < kLeastShared ? nullptr : pool_, matrix.rows, body);
}

Node Graph::add_node(Matrix value, std::function<void()> back) {
  State state{.value = std::move(value)};
  if (mode_ == Mode::train) {
    state.gradient = Matrix(state.value.rows, state.value.columns);
    state.back = std::move(back);
  }
  nodes_.push_back(std::move(state));
  return {nodes_.size() - 1};
}

Node Graph::embed(Parameter& table, std::span<const int32_t> ids) {
  Matrix out(std::ssize(ids), table.value.columns);
  for (int64_t i = 0; i < out.rows; ++i) {
    std::copy_n(table.value.row(ids[static_cast<size_t>(i)]), out.columns, out.row(i));
  }
  return add_node(std::move(out),
                  [this, node = next_node(), &table, rows = std::vector(ids.begin(), ids.end())] {
                    for (size_t i = 0; i < rows.size(); ++i) {
                      const float* from = gradient(node).row(static_cast<int64_t>(i));
                      float* to = table.gradient.row(rows[i]);
                      for (int64_t c = 0; c < table.value.columns; ++c) to[c] += from[c];
                    }
                  });
}

Node Graph::linear(Node x, Parameter& weight, Parameter& bias) {
  const Matrix& in = value(x);
  Matrix out(in.rows, weight.value.rows);
  for (int64_t i = 0; i < out.rows; ++i) std::copy_n(bias.value.row(0), out.columns, out.row(i));
  add_linear(out, in, weight.value, pool_);
  return add_node(std::move(out), [this, node = next_node(), x, &weight, &bias] {
    const Matrix& back = gradient(node);
    add_product(view(gradient_of(x)), view(back), view(std::as_const(weight.value)), pool_);
    add_product(view(weight.gradient), view(back).transposed(), view(value(x)), pool_);
    for (int64_t i = 0; i < back.rows; ++i) {
      for (int64_t c = 0; c < back.columns; ++c) bias.gradient.row(0)[c] += back.row(i)[c];
    }
  });
}

Node Graph::add(Node a, Node b) {
  Matrix out = value(a);
  add_to(out, value(b));
  return add_node(std::move(out), [this, node = next_node(), a, b] {
    add_to(gradient_of(a), gradient(node));
    add_to(gradient_of(b), gradient(node));
  });
}

Node Graph::normalise(Node x, Parameter& gain) {
  const Matrix& in = value(x);
  const auto columns = static_cast<float>(in.columns);
  Matrix out(in.rows, in.columns);
  std::vector<float> scales;  // 1 / rms of each row
  for (int64_t i = 0; i < in.rows; ++i) {
    float squares = 0;
    for (const float v : in.row_span(i)) squares += v * v;
    const float scale = 1 / std::sqrt(squares / columns + kNormEpsilon);
    scales.push_back(scale);
    for (int64_t c = 0; c < in.columns; ++c) {
      out.row(i)[c] = in.row(i)[c] * scale * gain.value.row(0)[c];
    }
  }
  return add_node(std::move(out), [this, node = next_node(), x, &gain, scales = std::move(scales)] {
    const Matrix& row_in = value(x);
    const float* gains = gain.value.row(0);
    for (int64_t i = 0; i < row_in.rows; ++i) {
      const float scale = scales[static_cast<size_t>(i)];
      const float* back = gradient(node).row(i);
      const float* row = row_in.row(i);
      float projected = 0;  // the gradient's part along the row, which normalising removes
      for (int64_t c = 0; c < row_in.columns; ++c) {
        gain.gradient.row(0)[c] += back[c] * row[c] * scale;
        projected += back[c] * gains[c] * row[c];
      }
      const float shrink = projected * scale * scale * scale / static_cast<float>(row_in.columns);
      float* to = gradient_of(x).row(i);
      for (int64_t c = 0; c < row_in.columns; ++c) {
        to[c] += back[c] * gains[c] * scale - row[c] * shrink;
      }
    }
  });
}

Node Graph::relu(Node x) {
  Matrix out = value(x);
  for (float& v : out.values) v = std::max(v, 0.0f);
  return add_node(std::move(out), [this, node = next_node(), x] {
    const std::vector<float>& in = value(x).values;
    const std::vector<float>& back = gradient(node).values;
    std::vector<float>& to = gradient_of(x).values;
    for (size_t i = 0; i < in.size(); ++i) to[i] += in[i] > 0 ? back[i] : 0.0f;
  });
}

Node Graph::attend(Node queries, Node keys, Node values, AttendOptions options) {
  const auto attention = std::make_shared<Attention>(std::move(options), pool_);
  Matrix out = attention->forward(value(queries), value(keys), value(values));
  return add_node(std::move(out), [this, node = next_node(), queries, keys, values, attention] {
    attention->backward({value(queries), value(keys), value(values)}, gradient(node),
                        {gradient_of(queries), gradient_of(keys), gradient_of(values)});
  });
}

double Graph::binary_cross_entropy(Node logits, const Matrix& targets) {
  const Matrix& all = value(logits);
  const auto count = static_cast<float>(all.values.size());
  std::vector<double> losses(static_cast<size_t>(all.rows));  // of each row
  over_rows(all, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      double loss = 0;
      for (int64_t c = 0; c < all.columns; ++c) {
        const float logit = all.row(i)[c];
        const float target = targets.row(i)[c];
        const float small = std::exp(-std::abs(logit));
        loss += std::max(logit, 0.0f) - logit * target + std::log1p(small);
        if (mode_ == Mode::train) {
          const float probability = (logit > 0 ? 1.0f : small) / (1 + small);
          gradient_of(logits).row(i)[c] += (probability - target) / count;
        }
      }
      losses[static_cast<size_t>(i)] = loss;
    }
  });
  return std::accumulate(losses.begin(), losses.end(), 0.0) / static_cast<double>(count);
}

void Graph::backward() {
  for (size_t i = nodes_.size(); i-- > 0;) {
    if (nodes_[i].back) nodes_[i].back();
  }
}

}  // namespace klotski::neural
