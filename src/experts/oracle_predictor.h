#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "experts/predictor.h"
#include "experts/recorded_routing.h"

namespace klotski {

// Knows the choices that sequences follow (RecordedRouting), in this pass and in the next. For
// experiments: says how much any predictor could gain.
class OraclePredictor : public ExpertPredictor {
 public:
  OraclePredictor(RoutingTraceShape shape, std::shared_ptr<const RecordedRouting> recorded)
      : ExpertPredictor(std::move(shape)), recorded_(std::move(recorded)) {}

  std::vector<double> next_pass_probabilities(LayerId layer) const override;

 private:
  void learn(size_t) override {}
  std::vector<double> estimate(size_t routed_layer, int64_t token) const override;
  // 1 for the experts of the layer that the token at the position chooses.
  void add_choices(std::vector<double>& probability, LayerId layer, int64_t sequence,
                   int64_t position) const;

  std::shared_ptr<const RecordedRouting> recorded_;
};

}  // namespace klotski
