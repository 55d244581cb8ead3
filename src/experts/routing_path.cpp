#include "experts/routing_path.h"

#include <algorithm>
#include <bit>
#include <numeric>

namespace klotski {

namespace {

std::vector<double> mean_shares(std::span<const RequestShares* const> requests, size_t experts) {
  std::vector<double> mean(experts);
  for (const RequestShares* shares : requests) {
    for (size_t e = 0; e < experts; ++e) {
      mean[e] += static_cast<double>((*shares)[e]) / static_cast<double>(requests.size());
    }
  }
  return mean;
}

}  // namespace

void RoutingPath::add(const RoutingPath& other) {
  for (size_t i = 0; i < words_.size(); ++i) words_[i] |= other.words_[i];
}

int64_t RoutingPath::used() const {
  return std::transform_reduce(words_.begin(), words_.end(), int64_t{0}, std::plus<>(),
                               [](uint64_t word) { return int64_t{std::popcount(word)}; });
}

int64_t hamming_distance(const RoutingPath& a, const RoutingPath& b) {
  int64_t distance = 0;
  for (size_t i = 0; i < a.words_.size(); ++i) {
    distance += std::popcount(a.words_[i] ^ b.words_[i]);
  }
  return distance;
}

std::vector<RoutingPath> distinctive_paths(std::span<const RequestShares* const> requests,
                                           const RoutingTraceShape& shape) {
  const int64_t experts = shape.experts();
  const std::vector<double> mean = mean_shares(requests, static_cast<size_t>(experts));
  std::vector<RoutingPath> paths;
  for (const RequestShares* shares : requests) {
    RoutingPath& path = paths.emplace_back(experts);
    const auto excess = [&](int64_t e) {
      const auto expert = static_cast<size_t>(e);
      return static_cast<double>((*shares)[expert]) - mean[expert];
    };
    int64_t first = 0;
    for (const RoutedLayer& layer : shape.layers) {
      std::vector<int64_t> order(static_cast<size_t>(layer.experts));
      std::iota(order.begin(), order.end(), first);
      const int64_t most =
          std::clamp<int64_t>(2 * int64_t{layer.top_k}, 1, std::max(layer.experts / 2, 1));
      std::partial_sort(order.begin(), order.begin() + most, order.end(),
                        [&](int64_t a, int64_t b) {
                          const double of_a = excess(a);
                          const double of_b = excess(b);
                          return of_a != of_b ? of_a > of_b : a < b;
                        });
      for (int64_t i = 0; i < most; ++i) path.add(order[static_cast<size_t>(i)]);
      first += layer.experts;
    }
  }
  return paths;
}

}  // namespace klotski
