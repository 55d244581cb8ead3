#include "forward/cross_attention.h"

#include "forward/grouped_heads.h"
#include "forward/norm.h"

namespace klotski {

namespace {

// Products that keys, values and queries come from keep more of their inputs' fraction, as in
// self-attention.
Precision projected_precision(const Arithmetic& with) {
  return with.precision == Precision::bf16 ? Precision::two_bf16 : with.precision;
}

// The first rows, `count` of them, which are taken away from `rows`.
Rows take_rows(Rows& rows, int64_t count) {
  const Rows taken = {rows.data, count, rows.width};
  rows = {rows.row(count), rows.count - count, rows.width};
  return taken;
}

}  // namespace

void keep_encoded(const Arithmetic& with, const GroupedHeads& shape, ConstRows hidden,
                  std::span<const AttendingSequence> sequences, const WeightSet& weights) {
  Buffer normed(with.ops, hidden.count, hidden.width);
  norm_rows(with, normed.rows(), hidden, weights[Role::encoder_norm],
            weights[Role::encoder_norm_bias]);
  Buffer keys(with.ops, hidden.count, shape.key_width());
  Buffer values(with.ops, hidden.count, shape.value_width());
  const Precision precision = projected_precision(with);
  with.ops.matmul(keys.rows(), normed.rows(), weights[Role::cross_key],
                  weights[Role::cross_key_bias], precision);
  with.ops.matmul(values.rows(), normed.rows(), weights[Role::cross_value],
                  weights[Role::cross_value_bias], precision);
  Rows keys_left = keys.rows();
  Rows values_left = values.rows();
  std::vector<KvRows> kept;
  for (const AttendingSequence& sequence : sequences) {
    kept.push_back({keys_and_values(sequence.cache), 0, take_rows(keys_left, sequence.encoded),
                    take_rows(values_left, sequence.encoded)});
  }
  with.ops.store_kv(kept);
}

void cross_attention(const Arithmetic& with, const GroupedHeads& shape, Rows hidden,
                     std::span<const AttendingSequence> sequences, const WeightSet& weights) {
  Buffer queries(with.ops, hidden.count, shape.query_width());
  Buffer attended(with.ops, hidden.count, shape.output_width());
  Buffer normed(with.ops, hidden.count, hidden.width);
  norm_rows(with, normed.rows(), hidden, weights[Role::cross_norm], weights[Role::cross_norm_bias]);
  with.ops.matmul(queries.rows(), normed.rows(), weights[Role::cross_query],
                  weights[Role::cross_query_bias], projected_precision(with));
  Rows queries_left = queries.rows();
  Rows attended_left = attended.rows();
  std::vector<AttentionArguments> arguments;
  for (const AttendingSequence& sequence : sequences) {
    const int64_t rows = sequence.output.count;
    arguments.push_back({.output = take_rows(attended_left, rows),
                         .queries = take_rows(queries_left, rows),
                         .query_heads = shape.query_heads,
                         .kv_heads = shape.kv_heads,
                         .cache = keys_and_values(sequence.cache),
                         .first_position = sequence.past,
                         .scale = shape.scale,
                         .seen_end = sequence.encoded,
                         .precision = score_precision(with, shape)});
  }
  with.ops.attention(arguments);
  Rows added = normed.rows();  // the normed rows are not needed any more
  with.ops.matmul(added, attended.rows(), weights[Role::cross_output],
                  weights[Role::cross_output_bias], with.precision);
  with.ops.add(hidden, added);
}

}  // namespace klotski
