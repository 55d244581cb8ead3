#include "executor/micro_batch.h"

namespace klotski {

void attend(const Arithmetic& with, const PagedKvCache& cache, const WeightSet& weights,
            const AttentionOf& attention) {
  const Batch& batch = attention.micro_batch.batch;
  const AttentionRows& inputs = attention.inputs;
  std::vector<KvView> views;
  views.reserve(batch.sequences.size());  // the arguments point into them
  std::vector<KvRows> new_rows;
  std::vector<AttendingSequence> sequences;
  for (size_t i = 0; i < batch.sequences.size(); ++i) {
    const BatchSequence& rows = batch.sequences[i];
    const KvSequence& sequence = *attention.micro_batch.sequences[i];
    const KvPages pages =
        views.emplace_back(cache.pages(sequence, attention.layer, attention.stage)).pages();
    new_rows.push_back(
        {pages, rows.past, rows_of(inputs.keys, rows), rows_of(inputs.values, rows)});
    sequences.push_back(
        {rows_of(attention.attended, rows), rows_of(inputs.queries, rows), pages, rows.past});
  }
  with.ops.store_kv(new_rows);
  klotski::attention(with, sequences, weights, attention.layer);
}

}  // namespace klotski
