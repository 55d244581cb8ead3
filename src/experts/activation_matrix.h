#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "experts/routing_trace.h"

namespace klotski {

// Expert activation matrix (EAM; MoE-Infinity, section 4.1): tokens routed to each expert, [routed
// layer][expert], in one iteration or summed over the iterations of a request.
class ActivationMatrix {
 public:
  explicit ActivationMatrix(const RoutingTraceShape& shape);

  // Counts the choices of tokens in a routed layer.
  void count(size_t routed_layer, std::span<const ExpertId> choices);
  // Adds an iteration to a request.
  void add(const ActivationMatrix& other);
  void clear();

  size_t layers() const { return begin_.size() - 1; }
  std::span<const float> layer(size_t routed_layer) const {
    return std::span(counts_).subspan(begin_[routed_layer],
                                      begin_[routed_layer + 1] - begin_[routed_layer]);
  }
  std::span<float> layer(size_t routed_layer) {
    return std::span(counts_).subspan(begin_[routed_layer],
                                      begin_[routed_layer + 1] - begin_[routed_layer]);
  }
  bool empty() const;

 private:
  std::vector<size_t> begin_;  // of each routed layer in counts_, and the end
  std::vector<float> counts_;  // whole numbers: floats keep them exactly up to 2^24
};

// Sum of the products of both matrices' counts in the first `layers` layers.
double dot_product(const ActivationMatrix& a, const ActivationMatrix& b, size_t layers);

// 1 - cosine of the angle between two vectors by their dot product and squared lengths: 0 for the
// same proportions, 1 where no expert is in both or where one of them is empty.
double cosine_distance(double dot, double a_squared, double b_squared);

}  // namespace klotski
