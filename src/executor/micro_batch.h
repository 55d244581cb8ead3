#pragma once

#include <span>
#include <vector>

#include "forward/batch.h"
#include "forward/layer.h"
#include "kv/paged_cache.h"

namespace klotski {

// Sequences computed by one kernel call: their tokens, and where they keep keys and values.
struct MicroBatch {
  Batch batch;
  std::vector<KvSequence*> sequences;  // the sequences of batch.sequences
  bool only_most_likely = false;       // only the index of each row's largest logit is asked for
};

// Attention of a micro-batch in one layer.
struct AttentionOf {
  const MicroBatch& micro_batch;
  LayerId layer;
  AttentionRows inputs;
  Rows attended;                   // [rows][Attention::output_width()]
  const KvStage* stage = nullptr;  // holds spilled keys and values; null: they are in their place
};

// The sequences of a micro-batch with the layer's data of each.
class Attending {
 public:
  Attending(const PagedKvCache& cache, const AttentionOf& attention);

  std::span<const AttendingSequence> sequences() const { return sequences_; }

 private:
  std::vector<KvView> views_;
  std::vector<AttendingSequence> sequences_;
};

// Puts the new rows into the cache and attends to all. Reads only the weights that attention needs
// besides its projections (sinks).
void attend(const Arithmetic& with, const PagedKvCache& cache, const WeightSet& weights,
            const AttentionOf& attention);

}  // namespace klotski
