#include "executor/micro_batch.h"

namespace klotski {

Attending::Attending(const PagedKvCache& cache, const AttentionOf& attention) {
  const Batch& batch = attention.micro_batch.batch;
  views_.reserve(batch.sequences.size());  // the sequences point into them
  sequences_.reserve(batch.sequences.size());
  for (size_t i = 0; i < batch.sequences.size(); ++i) {
    const BatchSequence& rows = batch.sequences[i];
    const KvSequence& sequence = *attention.micro_batch.sequences[i];
    const KvView& view =
        views_.emplace_back(cache.view(sequence, attention.layer, attention.stage));
    sequences_.push_back({rows_of(attention.attended, rows), rows_of(attention.inputs, rows),
                          view.cache(), rows.past, rows.encoded});
  }
}

void attend(const Arithmetic& with, const PagedKvCache& cache, const WeightSet& weights,
            const AttentionOf& attention) {
  const Attending attending(cache, attention);
  keep(with, attending.sequences(), attention.layer);
  klotski::attention(with, attending.sequences(), weights, attention.layer);
}

}  // namespace klotski
