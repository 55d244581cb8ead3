#pragma once

// The parts of a layer, each timed on weights of its own that are gone when it is done.

#include "hardware/profile.h"
#include "kernels/ops.h"
#include "memory/tier.h"
#include "probe/limits.h"
#include "probe/random_weights.h"
#include "probe/sample.h"

namespace klotski {

// What parts are measured with.
struct PartsBench {
  Tier& tier;  // its limit bounds all that is held
  const ProbeLimits& limits;
  const Ops& ops;
  Precision precision;
  const StoredTypes& types;

  Sample sample(const ModelDescription& model, LayerId layer, UnitKind kind) const;
  RandomWeights weights(const Sample& sample) const;
  std::vector<int64_t> row_counts() const;
};

void measure_attention(const PartsBench& bench, const ModelDescription& model, LayerId layer,
                       LayerProfile& profile);
void measure_gate(const PartsBench& bench, const ModelDescription& model, LayerId layer,
                  LayerProfile& profile);
void measure_expert(const PartsBench& bench, const ModelDescription& model, LayerId layer,
                    LayerProfile& profile);
void measure_embedding(const PartsBench& bench, const ModelDescription& model,
                       ModelProfile& profile);

}  // namespace klotski
