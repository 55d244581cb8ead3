#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "experts/predictor.h"
#include "model/unit_layout.h"
#include "schedule/policy.h"

namespace klotski {

// A micro-batch as known before its pass runs.
struct MicroBatchShape {
  bool spilled = false;  // its keys and values do not lie in the compute tier
  int64_t rows = 0;
  bool decodes = false;  // a row a sequence, each following others, all of them spilled
};

// Rows of a group up to which single experts are predicted: larger ones use nearly every expert,
// so that a prediction tells little and takes long.
inline constexpr int64_t kMostGuessedRows = 64;
// Coming layers whose experts are predicted.
inline constexpr int64_t kGuessedLayers = 8;

// The bytes of a unit of weights.
struct UnitFacts {
  uint64_t read_bytes = 0;   // bytes read from disk
  bool must_settle = false;  // has to be moved into place after reading
  uint64_t own_bytes = 0;    // bytes of its tensors, as a device gets them
};
UnitFacts facts_of(const UnitLayouts& layouts, const WeightUnit& unit);

// The facts that a schedule decides from, besides the policy.
struct ScheduleContext {
  const ModelDescription& model;
  std::vector<MicroBatchShape> group;  // micro-batches in the order of their numbers
  std::function<UnitFacts(const WeightUnit&)> facts;
  // Experts expected to take most tokens of a layer, likeliest first.
  std::function<std::vector<ExpertId>(LayerId)> hot;
  // For each coming layer, the next one first, the probability that the group uses each expert: in
  // this pass, or in the next pass for layers that this pass has finished. The list ends where
  // nothing is known.
  std::function<std::vector<LayerProbabilities>()> coming = [] {
    return std::vector<LayerProbabilities>();
  };
  double loads_a_layer = 1.0;  // experts that the link brings while a layer computes
  // Rows of the group that chose an expert of the layer whose gates have all finished; hybrid asks.
  std::function<double(ExpertId)> rows{};
  bool encodes = false;  // the group's rows are an encoder's input

  PassLayers layers() const { return model.pass_layers(encodes); }
  int64_t group_rows() const;
};

// Sources of the contexts of all passes of a run or of a simulation.
struct ContextSources {
  const ModelDescription& model;
  const CacheRule& rule;  // says how many experts of a layer are hot
  const ExpertPredictor& predictor;
  std::function<UnitFacts(const WeightUnit&)> facts;
  std::function<double(ExpertId)> rows;

  // The context of a pass of these micro-batches, none for a preload. It refers to the sources.
  ScheduleContext context(std::vector<MicroBatchShape> group) const;
  // The experts that the cache rule brings ahead for a layer, likeliest first.
  std::vector<ExpertId> hot(LayerId layer) const;
  // See ScheduleContext::coming; nothing for groups of more than kMostGuessedRows.
  std::vector<LayerProbabilities> coming() const;
};

}  // namespace klotski
