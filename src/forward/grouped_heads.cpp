#include "forward/grouped_heads.h"

#include <array>

#include "forward/joined_rows.h"
#include "forward/vector_weights.h"

namespace klotski {

namespace {

// The inputs of a row, in the order of GroupedHeads::queries(); those of cache() follow.
enum Input : size_t { kQueries, kGates };
size_t keys_of(const GroupedHeads& shape) { return shape.output_gate ? kGates + 1 : kQueries + 1; }
size_t values_of(const GroupedHeads& shape) { return keys_of(shape) + 1; }

// Queries and keys are normalised over each head, or over their whole width.
void norm_heads(const Arithmetic& with, Rows heads, const TensorView& weight,
                const GroupedHeads& shape) {
  if (shape.norm != HeadNorm::whole) {
    heads = {heads.data, heads.count * (heads.width / shape.head_dim), shape.head_dim};
  }
  with.ops.rms_norm(heads, heads, weight, with.model.norm_epsilon, with.model.norm_offset);
}

// Queries and their gates, which alternate head by head in one projection.
void project_gated(const Arithmetic& with, const GroupedHeads& shape, const AttentionRows& out,
                   ConstRows normed, const WeightSet& weights, Precision precision) {
  Buffer both(with.ops, normed.count, shape.query_rows());
  with.ops.matmul(both.rows(), normed, weights[Role::query], weights[Role::query_bias], precision);
  const std::array parts = {HeadPart{out.parts[kQueries], 0, shape.head_dim},
                            HeadPart{out.parts[kGates], 0, shape.head_dim}};
  with.ops.split_heads(both.rows(), shape.query_heads, parts);
}

// The bias of scores by distance, as AttentionArguments has it; empty where there is none.
List<float> bias_of(const Arithmetic& with, const GroupedHeads& shape, const WeightSet& weights) {
  if (!shape.relative_bias) return {with.ops, 0};
  const int64_t reach = shape.relative_bias->most_distance;
  std::vector<TokenId> buckets;
  for (int64_t distance = -reach; distance <= reach; ++distance) {
    buckets.push_back(static_cast<TokenId>(shape.relative_bias->bucket(distance)));
  }
  const List rows(with.ops, std::span<const TokenId>(buckets));
  List<float> bias(with.ops, rows.size() * shape.query_heads);
  with.ops.embed({bias.span().data(), rows.size(), shape.query_heads}, weights[Role::position_bias],
                 rows.span());
  return bias;
}

}  // namespace

Precision score_precision(const Arithmetic& with, const GroupedHeads& shape) {
  const bool large = shape.norm == HeadNorm::learned_after_rope || shape.scale == 1.0f;
  return large ? Precision::f32 : with.precision;
}

void pre_attention(const Arithmetic& with, const GroupedHeads& shape, const AttentionRows& out,
                   ConstRows normed, const WeightSet& weights, const Rotation& rotation) {
  const Rows& queries = out.parts[kQueries];
  const Rows& keys = out.parts[keys_of(shape)];
  const Rows& values = out.parts[values_of(shape)];
  // Errors of queries and keys grow in the softmax, and errors of keys and values stay in the
  // cache: their inputs keep more of their fraction.
  const Precision precision =
      with.precision == Precision::bf16 ? Precision::two_bf16 : with.precision;
  const auto project = [&](Rows to, Role weight, Role bias) {
    with.ops.matmul(to, normed, weights[weight], weights[bias], precision);
  };
  if (shape.output_gate) {
    project_gated(with, shape, out, normed, weights, precision);
  } else {
    project(queries, Role::query, Role::query_bias);
  }
  project(keys, Role::key, Role::key_bias);
  project(values, Role::value, Role::value_bias);
  const auto norm_both = [&] {
    norm_heads(with, queries, weights[Role::query_norm], shape);
    norm_heads(with, keys, weights[Role::key_norm], shape);
  };
  if (shape.norm == HeadNorm::per_head || shape.norm == HeadNorm::whole) norm_both();
  if (shape.clip > 0.0f) {
    for (const Rows& rows : {queries, keys, values}) {
      with.ops.clip({rows.data, static_cast<size_t>(rows.count * rows.width)}, shape.clip);
    }
  }
  for (const Rows& heads : {queries, keys}) {
    if (!shape.rotated) break;
    with.ops.rope({.heads = heads,
                   .head_dim = shape.head_dim,
                   .pairs = rotation.pairs,
                   .positions = rotation.positions.span(),
                   .frequencies = rotation.frequencies.span(),
                   .tables = rotation.tables.span(),
                   .scale = static_cast<float>(with.model.rope.attention_factor),
                   .interleaved = with.model.rope.interleaved});
  }
  // Without learned weights, the set has none of these roles.
  if (shape.norm == HeadNorm::after_rope || shape.norm == HeadNorm::learned_after_rope) norm_both();
  if (shape.tempered) with.ops.scale_rows(queries, rotation.temperatures.span());
}

void keep(const Arithmetic& with, const GroupedHeads& shape,
          std::span<const AttendingSequence> sequences) {
  std::vector<KvRows> rows;
  rows.reserve(sequences.size());
  for (const AttendingSequence& sequence : sequences) {
    rows.push_back({keys_and_values(sequence.cache), sequence.past,
                    sequence.inputs.parts[keys_of(shape)],
                    sequence.inputs.parts[values_of(shape)]});
  }
  with.ops.store_kv(rows);
}

void attention(const Arithmetic& with, const GroupedHeads& shape,
               std::span<const AttendingSequence> sequences, const WeightSet& weights) {
  List<float> sinks(with.ops, 0);
  if (shape.sinks) sinks = floats_of(with.ops, weights[Role::sinks], shape.query_heads);
  const int64_t reach = shape.relative_bias ? shape.relative_bias->most_distance : 0;
  const List<float> bias = bias_of(with, shape, weights);
  const Precision precision = score_precision(with, shape);
  std::vector<AttentionArguments> arguments;
  arguments.reserve(sequences.size());
  for (const AttendingSequence& sequence : sequences) {
    const bool decodes = sequence.past >= sequence.encoded;
    arguments.push_back({.output = sequence.output,
                         .queries = sequence.inputs.parts[kQueries],
                         .query_heads = shape.query_heads,
                         .kv_heads = shape.kv_heads,
                         .cache = keys_and_values(sequence.cache),
                         .first_position = sequence.past,
                         .scale = shape.scale,
                         .window = shape.window,
                         .chunk = shape.chunk,
                         .seen_begin = decodes ? sequence.encoded : 0,
                         .seen_end = shape.sees_all ? sequence.past + sequence.output.count : 0,
                         .position_bias = bias.span(),
                         .bias_reach = reach,
                         .sinks = sinks.span(),
                         .precision = precision});
  }
  with.ops.attention(arguments);
  if (!shape.output_gate) return;
  for (const JoinedRows& rows : joined_rows(sequences, kGates)) {
    with.ops.apply_gates(rows.output, rows.input, OutputGate::sigmoid);
  }
}

void project_attended(const Arithmetic& with, const GroupedHeads& /*shape*/, Rows out,
                      ConstRows attended, const WeightSet& weights) {
  with.ops.matmul(out, attended, weights[Role::attention_output],
                  weights[Role::attention_output_bias], with.precision);
}

}  // namespace klotski
