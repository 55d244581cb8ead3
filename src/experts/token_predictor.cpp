#include "experts/token_predictor.h"

#include <algorithm>
#include <utility>

#include "experts/correlation_table.h"

namespace klotski {

namespace {

// Counters of all tokens together; 64 MiB. Tokens that find no room are predicted by popularity.
constexpr int64_t kMostTokenCounters = 1 << 24;
// Tokens as which the layer's popularity counts beside those seen.
constexpr float kPopularityTokens = 4.0f;

}  // namespace

TokenPredictor::TokenPredictor(RoutingTraceShape shape)
    : ExpertPredictor(std::move(shape)), since_halving_(this->shape().layers.size()) {
  int64_t counters = 0;
  for (const RoutedLayer& layer : this->shape().layers) {
    counters += layer.experts + 1;
    all_.push_back({std::vector<float>(static_cast<size_t>(layer.experts)), 0.0f});
  }
  most_rows_ = kMostTokenCounters / std::max<int64_t>(counters, 1);
}

int64_t TokenPredictor::row_of(TokenId token) const {
  const auto found = row_of_.find(token);
  return found == row_of_.end() ? -1 : found->second;
}

void TokenPredictor::learn(size_t routed_layer) {
  const auto count = [&](Counts& counts, std::span<const ExpertId> chosen) {
    for (const ExpertId expert : chosen) counts.chosen[static_cast<size_t>(expert.value)] += 1.0f;
    counts.tokens += 1.0f;
  };
  for (int64_t i = 0; i < choices().tokens(); ++i) {
    const TokenId token = tokens()[static_cast<size_t>(i)].token;
    const std::span<const ExpertId> chosen = choices().token(routed_layer, i);
    count(all_[routed_layer], chosen);
    int64_t row = row_of(token);
    if (row < 0 && std::ssize(by_token_) < most_rows_) {
      row = std::ssize(by_token_);
      row_of_.emplace(token, row);
      std::vector<Counts>& counts = by_token_.emplace_back();
      for (const RoutedLayer& layer : shape().layers) {
        counts.push_back({std::vector<float>(static_cast<size_t>(layer.experts)), 0.0f});
      }
    }
    if (row >= 0) count(by_token_[static_cast<size_t>(row)][routed_layer], chosen);
    if (++since_halving_[routed_layer] == kTokensPerHalving) halve(routed_layer);
  }
}

void TokenPredictor::halve(size_t routed_layer) {
  const auto halve_counts = [](Counts& counts) {
    for (float& chosen : counts.chosen) chosen /= 2;
    counts.tokens /= 2;
  };
  halve_counts(all_[routed_layer]);
  for (std::vector<Counts>& token : by_token_) halve_counts(token[routed_layer]);
  since_halving_[routed_layer] = 0;
}

std::vector<double> TokenPredictor::estimate_for(size_t routed_layer, TokenId token) const {
  const Counts& all = all_[routed_layer];
  std::vector<double> probability(all.chosen.size());
  if (all.tokens == 0) return probability;
  const int64_t row = row_of(token);
  const Counts* of = row < 0 ? nullptr : &by_token_[static_cast<size_t>(row)][routed_layer];
  const float seen = of ? of->tokens : 0.0f;
  for (size_t e = 0; e < probability.size(); ++e) {
    const float popular = kPopularityTokens * all.chosen[e] / all.tokens;
    probability[e] = ((of ? of->chosen[e] : 0.0f) + popular) / (seen + kPopularityTokens);
  }
  return probability;
}

RequestShares TokenPredictor::expected_shares(std::span<const TokenId> tokens) const {
  RequestShares shares;
  for (size_t layer = 0; layer < all_.size(); ++layer) {
    if (all_[layer].tokens == 0) return {};
    std::vector<double> sums(all_[layer].chosen.size());
    for (const TokenId token : tokens) {
      const std::vector<double> of_token = estimate_for(layer, token);
      for (size_t e = 0; e < sums.size(); ++e) sums[e] += of_token[e];
    }
    for (const double sum : sums) {
      shares.push_back(static_cast<float>(sum / static_cast<double>(tokens.size())));
    }
  }
  return shares;
}

}  // namespace klotski
