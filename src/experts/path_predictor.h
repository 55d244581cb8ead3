#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "experts/path_network.h"
#include "experts/predictor.h"

namespace klotski {

// Predicts from the tokens of a pass and of their sequences alone, with a trained network, for all
// layers when the pass begins. Learns nothing while it runs.
class PathPredictor : public ExpertPredictor {
 public:
  // `network` is of this model's routed layers, and must live longer.
  explicit PathPredictor(PathNetwork& network);

  void end_sequence(int64_t sequence) override { sequences_.erase(sequence); }
  RequestShares expected_shares(std::span<const TokenId> tokens) const override;

 private:
  // A sequence read up to some position.
  struct Reading {
    PathState state{};
    int64_t next_position = 0;
  };
  struct Sequence {
    Reading now{};
    // Where the sequence stood when its last pass began: a pass that failed is tried again.
    Reading before{};
    int64_t last_pass = -1;
  };

  void pass_begun() override;
  void learn(size_t) override {}
  std::vector<double> estimate(size_t routed_layer, int64_t token) const override;
  // Tokens of the next pass are not known: nothing speaks for any expert.
  std::vector<ExpectedExpert> predict_in_next_pass(size_t, int64_t) const override { return {}; }

  // The number of tokens from `first` on that follow each other in one sequence.
  int64_t run_length(int64_t first) const;
  Reading& reading_before(const PassToken& first);

  PathNetwork& network_;
  std::vector<int64_t> first_expert_;  // [routed layer]: the first column of its experts
  std::unordered_map<int64_t, Sequence> sequences_;  // never iterated: its order is not ours
  neural::Matrix probabilities_;  // of this pass: [token][experts of all routed layers]
  int64_t passes_ = 0;
};

}  // namespace klotski
