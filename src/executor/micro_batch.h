#pragma once

#include <vector>

#include "forward/batch.h"
#include "forward/layer.h"
#include "kv/paged_cache.h"

namespace klotski {

// Sequences computed by one kernel call: their tokens, and where they keep keys and values.
struct MicroBatch {
  Batch batch;
  std::vector<KvSequence*> sequences;  // as in batch.sequences
  bool only_most_likely = false;       // of its logits only where the largest ones are is asked for
};

// Attention of a micro-batch in one layer.
struct AttentionOf {
  const MicroBatch& micro_batch;
  LayerId layer;
  AttentionRows inputs;
  Rows attended;                   // [rows][Attention::output_width()]
  const KvStage* stage = nullptr;  // that holds spilled keys and values; null: in their place
};

// Puts the new rows into the cache and attends to all. Of the weights only those are read that
// attention needs besides its projections (sinks).
void attend(const Arithmetic& with, const PagedKvCache& cache, const WeightSet& weights,
            const AttentionOf& attention);

}  // namespace klotski
