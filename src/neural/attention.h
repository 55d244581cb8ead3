#pragma once

// Softmax attention of several heads, forward and backward, for Graph::attend().

#include <cstdint>
#include <utility>
#include <vector>

#include "neural/matrix.h"

namespace klotski::neural {

// Rows that belong together, such as those of one sequence: the queries of a block see the keys of
// the block alone.
struct AttendBlock {
  int64_t first_query = 0;
  int64_t queries = 0;
  int64_t first_key = 0;
  int64_t keys = 0;
};

struct AttendOptions {
  int64_t heads = 1;
  // The queries of a block are the last rows of its keys: each sees the keys up to its own row.
  // Without it each query sees all keys of its block.
  bool causal = false;
  std::vector<AttendBlock> blocks;
};

// Queries [n][width], keys and values [m][width]; a head has width / heads columns of each.
class Attention {
 public:
  Attention(AttendOptions options, ThreadPool* pool) : options_(std::move(options)), pool_(pool) {}

  // The attended values [n][width].
  Matrix forward(const Matrix& queries, const Matrix& keys, const Matrix& values);

  struct Inputs {
    const Matrix& queries;
    const Matrix& keys;
    const Matrix& values;
  };
  struct Gradients {
    Matrix& queries;
    Matrix& keys;
    Matrix& values;
  };
  // Adds the gradients of the inputs of forward(), given that of its result.
  void backward(const Inputs& inputs, const Matrix& gradient, const Gradients& gradients) const;

 private:
  // A head of a block, with the parts of the matrices that it reads.
  struct Unit {
    Part queries;
    Part keys;
  };
  Unit unit(int64_t index, int64_t width) const;
  int64_t units() const { return std::ssize(options_.blocks) * options_.heads; }

  AttendOptions options_;
  ThreadPool* pool_;
  std::vector<Matrix> shares_;  // [block * heads + head]: [queries][keys]; a query's add up to 1
};

}  // namespace klotski::neural
