#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "experts/expected_expert.h"
#include "experts/group_choices.h"
#include "experts/routing_trace.h"
#include "model/description.h"

namespace klotski {

// The routed layers of a model, as traces, correlation tables and predictors name them.
RoutingTraceShape routing_shape(const ModelDescription& model);

// Predicts which experts of a coming layer the tokens of a pass will choose. A run and the
// simulation of one ask through this seam, so that a new way to predict is one new subclass and one
// line where the predictor is made. Asking changes nothing; a predictor learns by observe() alone.
class ExpertPredictor {
 public:
  explicit ExpertPredictor(const ModelDescription& model);
  virtual ~ExpertPredictor() = default;
  ExpertPredictor(const ExpertPredictor&) = delete;
  ExpertPredictor& operator=(const ExpertPredictor&) = delete;

  // Begins a pass of `tokens` tokens at the first layer; an unfinished pass is forgotten.
  void begin_pass(int64_t tokens) { choices_.restart(tokens); }
  // Tells the choices of the gates of the pass's next routed layer: [token][top_k], best first.
  void observe(LayerId layer, std::span<const ExpertId> choices);

  // At most `count` experts of the layer, likeliest first; fewer where nothing speaks for more. For
  // a layer that is not routed, its only expert.
  std::vector<ExpectedExpert> predict(LayerId layer, int64_t count) const;

  // The choices observed since begin_pass().
  const GroupChoices& choices() const { return choices_; }

 private:
  // `routed_layer` counts the routed layers only, as in RoutingTraceShape.
  virtual void learn(size_t routed_layer) = 0;
  virtual std::vector<ExpectedExpert> predict_routed(size_t routed_layer, int64_t count) const = 0;

  std::vector<int64_t> routed_index_;  // [layer]; -1: not routed
  GroupChoices choices_;
};

}  // namespace klotski
