#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "experts/predictor.h"

namespace klotski {

// Predicts by the token alone: how often each expert was chosen for the same token, drawn towards
// the layer's popularity where the token was seen seldom. Learns from every pass. Known before the
// first layer runs, for every layer.
class TokenPredictor : public ExpertPredictor {
 public:
  explicit TokenPredictor(RoutingTraceShape shape);

  RequestShares expected_shares(std::span<const TokenId> tokens) const override;

 private:
  void learn(size_t routed_layer) override;
  std::vector<double> estimate(size_t routed_layer, int64_t token) const override {
    return estimate_for(routed_layer, tokens()[static_cast<size_t>(token)].token);
  }
  std::vector<double> estimate_for(size_t routed_layer, TokenId token) const;
  // Tokens of the next pass are not known: nothing speaks for any expert.
  std::vector<ExpectedExpert> predict_in_next_pass(size_t, int64_t) const override { return {}; }

  // Counts of one layer: how often each expert was chosen, and for how many tokens.
  struct Counts {
    std::vector<float> chosen;  // [expert]
    float tokens = 0.0f;
  };
  // The number of the token's row in `by_token_`; -1: the token has none.
  int64_t row_of(TokenId token) const;
  void halve(size_t routed_layer);

  std::vector<Counts> all_;                      // [routed layer]
  std::vector<std::vector<Counts>> by_token_;    // [row][routed layer]
  std::unordered_map<TokenId, int64_t> row_of_;  // never iterated: its order is not ours
  int64_t most_rows_ = 0;
  std::vector<int64_t> since_halving_;  // [routed layer]: tokens
};

}  // namespace klotski
