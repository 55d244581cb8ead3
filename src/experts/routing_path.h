#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "experts/routing_trace.h"

namespace klotski {

// The routing path of a token or of a request (ExpertFlow, section 3.3): a bit for every expert of
// all routed layers, set where the expert is used.
class RoutingPath {
 public:
  RoutingPath() = default;  // of no experts
  explicit RoutingPath(int64_t experts) : words_(static_cast<size_t>((experts + 63) / 64)) {}

  // `expert` counts the experts of all routed layers, layer after layer.
  void add(int64_t expert) {
    words_[static_cast<size_t>(expert / 64)] |= uint64_t{1} << (expert % 64);
  }
  void add(const RoutingPath& other);  // the union; `other` has as many experts
  int64_t used() const;                // number of experts

  bool operator==(const RoutingPath&) const = default;

 private:
  friend int64_t hamming_distance(const RoutingPath& a, const RoutingPath& b);
  std::vector<uint64_t> words_;
};

// Experts that one of the two uses and the other does not. Both have as many experts.
int64_t hamming_distance(const RoutingPath& a, const RoutingPath& b);

// The share of a request's tokens that use each expert of all routed layers, layer after layer.
using RequestShares = std::vector<float>;

// The paths of requests as far as they tell them apart: of every layer the 2 top_k experts (at most
// half of the layer's) whose share in the request exceeds their mean share in all of `requests` by
// most, ties to the lower expert. Experts that every request uses say nothing about which of them
// are alike. `requests` are of `shape`.
std::vector<RoutingPath> distinctive_paths(std::span<const RequestShares* const> requests,
                                           const RoutingTraceShape& shape);

}  // namespace klotski
