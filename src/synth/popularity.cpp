#include "synth/popularity.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <numeric>
#include <utility>

#include "base/noise.h"

namespace klotski {

namespace {

constexpr uint64_t kSimulationKey = 0x6B6C6F74736B69;  // fixed: a share means one strength
constexpr int64_t kSimulatedLogits = 1 << 19;
constexpr int kHalvings = 20;
constexpr double kMaxStrength = 1024.0;

// The share of the top_k ranks among the choices of simulated tokens.
double simulated_share(const Popularity& popularity) {
  const auto experts = static_cast<size_t>(popularity.experts);
  const auto top_k = static_cast<size_t>(popularity.top_k);
  const int64_t tokens = std::clamp<int64_t>(kSimulatedLogits / popularity.experts, 128, 8192);
  const double unit = 1.0 / noise_deviation();
  std::vector<double> biases(experts);
  for (size_t r = 0; r < experts; ++r) biases[r] = popularity.bias(static_cast<int64_t>(r));
  std::vector<std::pair<double, size_t>> logits(experts);
  int64_t popular = 0;
  for (int64_t token = 0; token < tokens; ++token) {
    for (size_t r = 0; r < experts; ++r) {
      const uint64_t index = static_cast<uint64_t>(token) * experts + r;
      logits[r] = {noise(kSimulationKey, index) * unit + biases[r], r};
    }
    const auto last = logits.begin() + static_cast<std::ptrdiff_t>(top_k);
    std::nth_element(logits.begin(), last - 1, logits.end(), std::greater<>());
    popular += std::count_if(logits.begin(), last,
                             [&](const auto& logit) { return logit.second < top_k; });
  }
  return static_cast<double>(popular) / static_cast<double>(tokens * popularity.top_k);
}

}  // namespace

Popularity popularity_for_share(int64_t experts, int64_t top_k, double share) {
  Popularity popularity{experts, top_k, 0.0};
  if (share <= static_cast<double>(top_k) / static_cast<double>(experts)) return popularity;
  double low = 0.0;
  double high = 1.0;
  const auto reaches = [&](double strength) {
    popularity.strength = strength;
    return simulated_share(popularity) >= share;
  };
  while (high < kMaxStrength && !reaches(high)) low = std::exchange(high, 2 * high);
  for (int i = 0; i < kHalvings; ++i) {
    const double middle = (low + high) / 2;
    (reaches(middle) ? high : low) = middle;
  }
  popularity.strength = high;
  return popularity;
}

std::vector<int64_t> ranks_of_experts(uint64_t key, int64_t experts) {
  std::vector<int64_t> ranks(static_cast<size_t>(experts));
  std::iota(ranks.begin(), ranks.end(), 0);
  for (size_t i = ranks.size(); i > 1; --i) {
    std::swap(ranks[i - 1], ranks[noise_bits(key, i) % i]);
  }
  return ranks;
}

}  // namespace klotski
