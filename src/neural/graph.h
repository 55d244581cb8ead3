#pragma once

// A computation of matrices that remembers how each came about, so that the gradient of a loss can
// be carried back to the parameters (reverse-mode differentiation).

#include <cstdint>
#include <deque>
#include <functional>
#include <span>

#include "neural/attention.h"
#include "neural/parameter.h"

namespace klotski::neural {

// Names a matrix of a graph.
struct Node {
  size_t index = 0;
};

class Graph {
 public:
  // A training graph remembers what each matrix was made of and adds to the parameters' gradients;
  // a running one reads the parameters only.
  enum class Mode { run, train };
  // `pool` may be null; it and the parameters must outlive the graph.
  explicit Graph(Mode mode, ThreadPool* pool = nullptr) : mode_(mode), pool_(pool) {}
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  const Matrix& value(Node node) const { return nodes_[node.index].value; }
  // The gradient of all losses with respect to a matrix; known after backward().
  const Matrix& gradient(Node node) const { return nodes_[node.index].gradient; }

  Node constant(Matrix value) { return add_node(std::move(value), {}); }
  // The rows of a table with these numbers: [ids][columns].
  Node embed(Parameter& table, std::span<const int32_t> ids);
  // x * weight^T + bias; weight [out][in], bias [1][out].
  Node linear(Node x, Parameter& weight, Parameter& bias);
  Node add(Node a, Node b);
  // x / rms(x) * gain, row by row; gain [1][columns].
  Node normalise(Node x, Parameter& gain);
  Node relu(Node x);
  Node attend(Node queries, Node keys, Node values, AttendOptions options);

  // The mean binary cross-entropy of logits against targets of 0 or 1 of the same shape. A training
  // graph adds its gradient to that of the logits. Several losses add up.
  double binary_cross_entropy(Node logits, const Matrix& targets);
  // Carries the gradients of all losses back to the parameters' `gradient`.
  void backward();

 private:
  struct State {
    Matrix value{};
    Matrix gradient{};             // empty but while training
    std::function<void()> back{};  // adds to the gradients of what the matrix was made of
  };

  Node add_node(Matrix value, std::function<void()> back);
  Node next_node() const { return {nodes_.size()}; }
  Matrix& gradient_of(Node node) { return nodes_[node.index].gradient; }
  // Runs the body on ranges of rows, in threads where the rows are long and many.
  void over_rows(const Matrix& matrix, const ThreadPool::Body& body) const;

  Mode mode_;
  ThreadPool* pool_;
  std::deque<State> nodes_;  // references to matrices stay while nodes are added
};

}  // namespace klotski::neural
