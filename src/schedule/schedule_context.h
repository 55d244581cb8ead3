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
  // Rows of the group that chose an expert of the layer whose gates have all finished; hybrid asks.
  std::function<double(ExpertId)> rows{};

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
};

}  // namespace klotski
