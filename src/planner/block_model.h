#pragma once

// The papers' quantities for a policy, from the machine's measured rates: the inputs of Klotski's
// inequalities and of the roofline model.

#include <optional>

#include "planner/inequalities.h"
#include "planner/pass_simulator.h"
#include "planner/roofline.h"

namespace klotski {

// Times of one routed layer while sequences of `positions` cached positions decode. Units that stay
// in memory are not transferred; of experts, the share without a slot is. Nothing where the model
// has no routed layer.
struct BlockModel {
  LayerId layer;
  BlockSeconds seconds;
  ExpertChoices choices;
};
std::optional<BlockModel> block_model(const PredictionInputs& with, const Policy& policy,
                                      double positions);

// Main memory over the disk: arithmetic at the rate that experts with many rows reach. Nothing
// where weights come from no disk, since its rate was not measured then.
std::optional<LevelPair> memory_over_disk(const PredictionInputs& with);

// One expert of the layer over `rows` rows, its weights read from disk once.
Operation expert_operation(const PredictionInputs& with, LayerId layer, double rows);

}  // namespace klotski
