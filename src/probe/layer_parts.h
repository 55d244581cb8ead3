#pragma once

// The parts of a layer, each timed on weights of its own that are gone when it is done.

#include <cstdint>
#include <functional>
#include <vector>

#include "hardware/profile.h"
#include "kernels/ops.h"
#include "memory/tier.h"
#include "probe/curve_timer.h"
#include "probe/limits.h"
#include "probe/random_weights.h"
#include "probe/sample.h"

namespace klotski {

// The limits with weights of six times the processor's last cache, where the system tells its size
// and more than one copy is wanted at all.
ProbeLimits beyond_caches(const ProbeLimits& limits);

// Memory, operations and limits with which the parts of a layer are measured.
struct PartsBench {
  Tier& tier;  // its limit bounds all memory that is held
  const ProbeLimits& limits;
  const Processor& ops;
  Precision precision;
  const StoredTypes& types;

  Sample sample(const ModelDescription& model, LayerId layer, UnitKind kind) const;
  RandomWeights weights(const Sample& sample) const;
  std::vector<int64_t> row_counts() const;
  // The CPU takes rows in blocks: one row more than a full block, or than two, takes as long as
  // many more.
  std::vector<int64_t> expert_row_counts() const;
};

// One expert, or a dense layer's feed-forward part, on weights that lie as in the file until they
// are arranged. On a device a call has up to eight experts of few rows, as a run's call has of
// those that are there: launching kernels takes as long as a small expert does.
class ExpertPart {
 public:
  ExpertPart(const PartsBench& bench, const ModelDescription& model, LayerId layer);
  ExpertPart(const ExpertPart&) = delete;
  ExpertPart& operator=(const ExpertPart&) = delete;

  void arrange() { weights_.arrange(bench_.precision); }
  Curve time();  // seconds of an expert by its rows

  // call(): a call of experts with `rows` rows each, to be timed while this lives; on a sample, so
  // they may be less than whole experts. bytes(): memory that it takes besides weights.
  // experts_of_call(): how many experts it has.
  std::function<void()> call(int64_t rows);
  uint64_t bytes(int64_t rows) const;
  int64_t experts_of_call(int64_t rows) const;

 private:
  const PartsBench& bench_;
  Sample sample_;
  RandomWeights weights_;
  int64_t most_experts_;  // of a call
};

// Seconds of one of several rows at once, by the cached positions it sees.
Curve time_attend_decode(const PartsBench& bench, const ModelDescription& model, LayerId layer);

void measure_attention(const PartsBench& bench, const ModelDescription& model, LayerId layer,
                       LayerProfile& profile);
void measure_gate(const PartsBench& bench, const ModelDescription& model, LayerId layer,
                  LayerProfile& profile);
void measure_expert(const PartsBench& bench, const ModelDescription& model, LayerId layer,
                    LayerProfile& profile);
void measure_embedding(const PartsBench& bench, const ModelDescription& model,
                       ModelProfile& profile);

}  // namespace klotski
