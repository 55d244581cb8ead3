#pragma once

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "experts/predictor.h"

namespace klotski {

// Predicts the pass at hand by one predictor, which knows its tokens, and the next pass by another,
// which knows the sequences.
class JoinedPredictor : public ExpertPredictor {
 public:
  JoinedPredictor(std::unique_ptr<ExpertPredictor> this_pass,
                  std::unique_ptr<ExpertPredictor> next_pass)
      : ExpertPredictor(this_pass->shape()),
        this_pass_(std::move(this_pass)),
        next_pass_(std::move(next_pass)) {}

  void end_sequence(int64_t sequence) override {
    this_pass_->end_sequence(sequence);
    next_pass_->end_sequence(sequence);
  }
  RequestShares expected_shares(std::span<const TokenId> tokens) const override {
    return this_pass_->expected_shares(tokens);
  }
  std::vector<double> next_pass_probabilities(LayerId layer) const override {
    return next_pass_->next_pass_probabilities(layer);
  }

 private:
  void pass_begun() override {
    const std::vector<PassToken> of_pass(tokens().begin(), tokens().end());
    this_pass_->begin_pass(of_pass);
    next_pass_->begin_pass(of_pass);
  }
  void learn(size_t routed_layer) override {
    const LayerId layer = shape().layers[routed_layer].layer;
    const std::span<const ExpertId> chosen = choices().layer(routed_layer);
    this_pass_->observe(layer, chosen);
    next_pass_->observe(layer, chosen);
  }
  std::vector<double> estimate(size_t routed_layer, int64_t token) const override {
    return this_pass_->probabilities(shape().layers[routed_layer].layer, token, 1);
  }
  std::vector<ExpectedExpert> predict_in_next_pass(size_t routed_layer,
                                                   int64_t count) const override {
    return next_pass_->predict(shape().layers[routed_layer].layer, count);
  }

  std::unique_ptr<ExpertPredictor> this_pass_;
  std::unique_ptr<ExpertPredictor> next_pass_;
};

}  // namespace klotski
