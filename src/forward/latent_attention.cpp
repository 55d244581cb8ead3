#include "forward/latent_attention.h"

namespace klotski {

namespace {

// The inputs of a row, in the order of LatentAttention::queries() and cache().
enum LatentInput : size_t { kAbsorbedQueries, kLatent };

// Precision of the products around attention: their inputs keep more of their fraction. Errors of
// queries grow in the softmax, errors of latent vectors stay in the cache, and results pass through
// one product more than those of grouped heads. Queries are not rounded in the scores either.
Precision careful_precision(const Arithmetic& with) {
  return with.precision == Precision::bf16 ? Precision::two_bf16 : with.precision;
}

void project_queries(const Arithmetic& with, const LatentAttention& shape, Rows queries,
                     ConstRows normed, const WeightSet& weights) {
  const Precision precision = careful_precision(with);
  if (shape.query_rank == 0) {
    return with.ops.matmul(queries, normed, weights[Role::query], TensorView(), precision);
  }
  Buffer low(with.ops, normed.count, shape.query_rank);
  with.ops.matmul(low.rows(), normed, weights[Role::query_down], weights[Role::query_down_bias],
                  precision);
  with.ops.rms_norm(low.rows(), low.rows(), weights[Role::query_down_norm], shape.norm_epsilon);
  with.ops.matmul(queries, low.rows(), weights[Role::query_up], TensorView(), precision);
}

// Rotates the last numbers of each head of `head_dim`.
void rotate(const Arithmetic& with, const LatentAttention& shape, Rows heads, int64_t head_dim,
            const Rotation& rotation) {
  with.ops.rope({.heads = heads,
                 .head_dim = head_dim,
                 .pairs = rotation.pairs,
                 .first = head_dim - shape.rotated_dims,
                 .positions = rotation.positions.span(),
                 .frequencies = rotation.frequencies.span(),
                 .tables = rotation.tables.span(),
                 .scale = static_cast<float>(with.model.rope.attention_factor),
                 .interleaved = with.model.rope.interleaved});
}

// W_uk^T * query for each head, and the rotated numbers of the query after it.
void absorb(const Arithmetic& with, const LatentAttention& shape, Rows absorbed, ConstRows queries,
            const WeightSet& weights) {
  const bool apart = shape.apart;
  with.ops.matmul_by_head({.out = absorbed,
                           .in = queries,
                           .heads = shape.query_heads,
                           .weight = weights[apart ? Role::latent_key_up : Role::latent_up],
                           .first_row = 0,
                           .rows = apart ? shape.latent_rank : shape.plain_dims,
                           .transposed = !apart,
                           .precision = careful_precision(with)});
}

}  // namespace

void pre_attention(const Arithmetic& with, const LatentAttention& shape, const AttentionRows& out,
                   ConstRows normed, const WeightSet& weights, const Rotation& rotation) {
  Buffer queries(with.ops, normed.count, shape.query_heads * shape.query_dim());
  project_queries(with, shape, queries.rows(), normed, weights);
  rotate(with, shape, queries.rows(), shape.query_dim(), rotation);
  absorb(with, shape, out.parts[kAbsorbedQueries], queries.rows(), weights);

  const Rows& latent = out.parts[kLatent];
  with.ops.matmul(latent, normed, weights[Role::latent_down], weights[Role::latent_down_bias],
                  careful_precision(with));
  with.ops.rms_norm(latent, latent, weights[Role::latent_norm], shape.norm_epsilon);
  rotate(with, shape, latent, shape.key_width(), rotation);
}

void keep(const Arithmetic& with, const LatentAttention& /*shape*/,
          std::span<const AttendingSequence> sequences) {
  std::vector<KvRows> rows;
  rows.reserve(sequences.size());
  for (const AttendingSequence& sequence : sequences) {
    const Rows& latent = sequence.inputs.parts[kLatent];
    rows.push_back(
        {keys_with_values(sequence.cache), sequence.past, latent, Rows{nullptr, latent.count, 0}});
  }
  with.ops.store_kv(rows);
}

void attention(const Arithmetic& with, const LatentAttention& shape,
               std::span<const AttendingSequence> sequences, const WeightSet& /*weights*/) {
  std::vector<AttentionArguments> arguments;
  arguments.reserve(sequences.size());
  for (const AttendingSequence& sequence : sequences) {
    arguments.push_back({.output = sequence.output,
                         .queries = sequence.inputs.parts[kAbsorbedQueries],
                         .query_heads = shape.query_heads,
                         .kv_heads = 1,
                         .cache = keys_with_values(sequence.cache),
                         .first_position = sequence.past,
                         .scale = shape.scale,
                         .precision = Precision::f32});
  }
  with.ops.attention(arguments);
}

void project_attended(const Arithmetic& with, const LatentAttention& shape, Rows out,
                      ConstRows attended, const WeightSet& weights) {
  Buffer values(with.ops, attended.count, shape.projected_width());
  with.ops.matmul_by_head({.out = values.rows(),
                           .in = attended,
                           .heads = shape.query_heads,
                           .weight = weights[shape.apart ? Role::latent_value_up : Role::latent_up],
                           .first_row = shape.apart ? 0 : shape.plain_dims,
                           .rows = shape.value_dim,
                           .precision = careful_precision(with)});
  with.ops.matmul(out, values.rows(), weights[Role::attention_output],
                  weights[Role::attention_output_bias], careful_precision(with));
}

}  // namespace klotski
