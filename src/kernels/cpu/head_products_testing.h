#pragma once

// Products with a matrix for each head, for the tests of every processor.

#include <ostream>
#include <vector>

#include "kernels/cpu/testing.h"

namespace klotski {

struct HeadShape {
  int64_t tokens, heads, head_rows, first_row, rows, columns, kept;
  bool transposed;
};

inline std::ostream& operator<<(std::ostream& to, const HeadShape& shape) {
  return to << shape.tokens << " tokens, " << shape.heads << " heads, rows " << shape.first_row
            << " + " << shape.rows << " of " << shape.head_rows << ", " << shape.columns
            << " columns, kept " << shape.kept << (shape.transposed ? ", transposed" : "");
}

// A product and its inputs.
struct HeadCase {
  HeadShape shape;
  DType dtype;
  std::vector<float> in;
  Weights weight;
  Weights sizes;  // magnitudes of the weights

  HeadCase(const HeadShape& s, DType type, unsigned seed)
      : shape(s),
        dtype(type),
        in(random_floats(s.tokens * in_width(), seed)),
        weight(random_floats(s.heads * s.head_rows * s.columns, seed + 1), type, whole()),
        sizes(absolute(random_floats(s.heads * s.head_rows * s.columns, seed + 1)), type, whole()) {
  }

  Shape whole() const { return {shape.heads * shape.head_rows, shape.columns}; }
  int64_t in_width() const {
    return shape.heads * ((shape.transposed ? shape.rows : shape.columns) + shape.kept);
  }
  int64_t out_width() const {
    return shape.heads * ((shape.transposed ? shape.columns : shape.rows) + shape.kept);
  }
  HeadProducts arguments(Rows out, const std::vector<float>& inputs, const TensorView& weights,
                         Precision precision) const {
    return {.out = out,
            .in = {inputs.data(), shape.tokens, in_width()},
            .heads = shape.heads,
            .weight = weights,
            .first_row = shape.first_row,
            .rows = shape.rows,
            .transposed = shape.transposed,
            .precision = precision};
  }
  std::vector<float> reference(const std::vector<float>& inputs, const TensorView& weights,
                               Precision precision) const {
    std::vector<float> out(static_cast<size_t>(shape.tokens * out_width()));
    reference_processor().matmul_by_head(
        arguments({out.data(), shape.tokens, out_width()}, inputs, weights, precision));
    return out;
  }
};

inline std::vector<HeadShape> head_shapes() {
  std::vector<HeadShape> shapes;
  for (const bool transposed : {false, true}) {
    for (const int64_t tokens : {1, 3, 17, 70}) {
      shapes.push_back({tokens, 3, 40, 8, 24, 33, transposed ? 5 : 0, transposed});
      shapes.push_back({tokens, 2, 9, 0, 9, 64, 3, transposed});
      shapes.push_back({tokens, 1, 150, 20, 130, 70, 0, transposed});
    }
  }
  return shapes;
}

}  // namespace klotski
