#include "synth/popularity.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <numeric>
#include <utility>
#include <vector>

#include "base/noise.h"

namespace klotski {

namespace {

constexpr uint64_t kSimulationKey = 0x6B6C6F74736B69;  // fixed: a share means one strength
constexpr int64_t kSimulatedLogits = 1 << 19;
constexpr int kHalvings = 20;
constexpr double kMaxStrength = 1024.0;

// Tokens whose gates add the same noise to every popularity they are tried with.
class SimulatedTokens {
 public:
  SimulatedTokens(int64_t experts, int64_t top_k)
      : experts_(static_cast<size_t>(experts)), top_k_(static_cast<size_t>(top_k)) {
    const auto tokens =
        static_cast<size_t>(std::clamp<int64_t>(kSimulatedLogits / experts, 128, 8192));
    const double unit = 1.0 / noise_deviation();
    noise_.resize(tokens * experts_);
    for (size_t i = 0; i < noise_.size(); ++i) noise_[i] = noise(kSimulationKey, i) * unit;
  }

  // The share of the top_k ranks among the tokens' choices.
  double share(const Popularity& popularity) const {
    std::vector<double> biases(experts_);
    for (size_t r = 0; r < experts_; ++r) biases[r] = popularity.bias(static_cast<int64_t>(r));
    std::vector<double> logits(experts_);
    std::vector<double> ordered;
    int64_t popular = 0;
    for (size_t first = 0; first < noise_.size(); first += experts_) {
      for (size_t r = 0; r < experts_; ++r) logits[r] = noise_[first + r] + biases[r];
      ordered = logits;
      const auto last = ordered.begin() + static_cast<std::ptrdiff_t>(top_k_) - 1;
      std::nth_element(ordered.begin(), last, ordered.end(), std::greater<>());
      popular += std::count_if(logits.begin(), logits.begin() + static_cast<std::ptrdiff_t>(top_k_),
                               [&](double logit) { return logit >= *last; });
    }
    return static_cast<double>(popular) / static_cast<double>(noise_.size() / experts_ * top_k_);
  }

 private:
  size_t experts_;
  size_t top_k_;
  std::vector<double> noise_;  // [token][rank]
};

}  // namespace

Popularity popularity_for_share(int64_t experts, int64_t top_k, double share) {
  Popularity popularity{experts, top_k, 0.0};
  if (share <= static_cast<double>(top_k) / static_cast<double>(experts)) return popularity;
  const SimulatedTokens tokens(experts, top_k);
  double low = 0.0;
  double high = 1.0;
  const auto reaches = [&](double strength) {
    popularity.strength = strength;
    return tokens.share(popularity) >= share;
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
