#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "experts/expected_expert.h"
#include "experts/group_choices.h"
#include "experts/routing_path.h"
#include "experts/routing_trace.h"
#include "model/description.h"

namespace klotski {

// The routed layers of a model, as traces, correlation tables and predictors name them.
RoutingTraceShape routing_shape(const ModelDescription& model);

// A token that a pass computes.
struct PassToken {
  int64_t sequence = 0;  // number of the token's sequence, the same in all passes of the sequence
  int64_t position = 0;  // of the token in its sequence
  TokenId token = 0;
  bool decodes = false;  // computed after its prompt, or a draft; false: one of the prompt's tokens
};

// Predicts which experts of coming layers the tokens of a pass will choose. A run and the
// simulation of one ask through this seam, so that a new way to predict is one new subclass and one
// line where the predictor is made. Asking changes nothing; a predictor learns by observe() and
// end_sequence() alone.
class ExpertPredictor {
 public:
  explicit ExpertPredictor(RoutingTraceShape shape);
  virtual ~ExpertPredictor() = default;
  ExpertPredictor(const ExpertPredictor&) = delete;
  ExpertPredictor& operator=(const ExpertPredictor&) = delete;

  // Begins a pass of these tokens at a layer; an unfinished pass is forgotten.
  void begin_pass(std::vector<PassToken> tokens, LayerId first = LayerId(0));
  // Tells the choices of the gates of the pass's next routed layer: [token][top_k], best first.
  void observe(LayerId layer, std::span<const ExpertId> choices);
  // Tells that the sequence will not be in any later pass.
  virtual void end_sequence(int64_t) {}

  // For each expert of the layer the probability that at least one of `count` tokens of the pass,
  // from the token `first` on, chooses the expert: one token, those of one sequence, or all. Tokens
  // count as independent: 1 - product of (1 - p). Certain, 0 or 1, for a layer whose gates were
  // observed and for the one expert of a layer that is not routed.
  std::vector<double> probabilities(LayerId layer, int64_t first, int64_t count) const;
  std::vector<double> group_probabilities(LayerId layer) const {
    return probabilities(layer, 0, choices_.tokens());
  }
  // The group's probabilities in the next `horizon` routed layers, from the first whose gates were
  // not observed yet; fewer at the end of the pass. They change with every observe().
  std::vector<LayerProbabilities> coming(int64_t horizon) const;

  // The group's probabilities in the next pass of the same sequences, whatever their next tokens
  // are; empty where the predictor knows nothing about a sequence beyond the pass at hand.
  virtual std::vector<double> next_pass_probabilities(LayerId) const { return {}; }

  // The share of these tokens that will choose each expert, where a new sequence begins with them;
  // nothing about the pass at hand counts. Empty where the predictor needs the choices of gates, or
  // has not learnt anything yet.
  virtual RequestShares expected_shares(std::span<const TokenId>) const { return {}; }

  // At most `count` experts of the layer, those that take most tokens of the group first; fewer
  // where nothing speaks for more. For a layer that is not routed, its one expert.
  std::vector<ExpectedExpert> predict(LayerId layer, int64_t count) const;

  // The tokens of the pass, as begin_pass() was told.
  std::span<const PassToken> tokens() const { return tokens_; }
  // The choices observed since begin_pass().
  const GroupChoices& choices() const { return choices_; }
  const RoutingTraceShape& shape() const { return shape_; }

 protected:
  // predict_routed() of a layer that this pass is through with: of the next pass, whose tokens are
  // not known yet.
  virtual std::vector<ExpectedExpert> predict_in_next_pass(size_t routed_layer,
                                                           int64_t count) const {
    return predict_routed(routed_layer, count);
  }

  // The layer's number among the routed layers; -1: the layer is not routed.
  int64_t routed_index(LayerId layer) const;

 private:
  // The routed layers below count the routed layers only, as in RoutingTraceShape.

  // tokens() are new.
  virtual void pass_begun() {}
  virtual void learn(size_t routed_layer) = 0;
  // The probability of each expert of the layer that the token chooses it, [expert]; the layer's
  // gates were not observed in this pass.
  virtual std::vector<double> estimate(size_t routed_layer, int64_t token) const = 0;
  // The experts with the largest sum of the tokens' estimates, ties to the lower expert, without
  // those of sum zero. A predictor overrides it to find them in fewer steps.
  virtual std::vector<ExpectedExpert> predict_routed(size_t routed_layer, int64_t count) const;

  RoutingTraceShape shape_;
  std::vector<int64_t> routed_index_;  // [layer up to the last routed one]; -1: not routed
  std::vector<PassToken> tokens_;
  GroupChoices choices_;
};

}  // namespace klotski
