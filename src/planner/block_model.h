#pragma once

// The papers' quantities for a policy, from the machine's measured rates: the inputs of Klotski's
// inequalities and of the roofline model.

#include <optional>
#include <string_view>

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

// Two adjacent levels with the names of their memories and of what is between them.
struct NamedLevels {
  LevelPair levels;
  std::string_view upper;
  std::string_view lower;
  std::string_view link;
};

// The level that computes and the one from which weights come to it: with a device its memory over
// main memory, whose processor computes experts too where it was measured; else main memory over
// the disk. Arithmetic at the rate that experts with many rows reach; of a device's memory the rate
// at which an expert of one row reads its weights. Nothing where weights come from no disk to main
// memory, since its rate was not measured then.
std::optional<NamedLevels> levels_of_weights(const PredictionInputs& with);

// One expert of the layer over `rows` rows, its weights brought from the lower level once.
Operation expert_operation(const PredictionInputs& with, LayerId layer, double rows);

}  // namespace klotski
