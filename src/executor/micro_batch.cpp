#include "executor/micro_batch.h"

namespace klotski {

void attend(const Arithmetic& with, const PagedKvCache& cache, const WeightSet& weights,
            const AttentionOf& attention) {
  const Batch& batch = attention.micro_batch.batch;
  const AttentionRows& inputs = attention.inputs;
  std::vector<KvView> views;
  views.reserve(batch.sequences.size());  // the arguments point into them
  std::vector<AttendingSequence> sequences;
  sequences.reserve(batch.sequences.size());
  for (size_t i = 0; i < batch.sequences.size(); ++i) {
    const BatchSequence& rows = batch.sequences[i];
    const KvSequence& sequence = *attention.micro_batch.sequences[i];
    const KvView& view = views.emplace_back(cache.view(sequence, attention.layer, attention.stage));
    sequences.push_back(
        {rows_of(attention.attended, rows), rows_of(inputs, rows), view.cache(), rows.past});
  }
  keep(with, sequences, attention.layer);
  klotski::attention(with, sequences, weights, attention.layer);
}

}  // namespace klotski
