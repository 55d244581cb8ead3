#include "forward/grouped_heads.h"

#include "forward/vector_weights.h"

namespace klotski {

namespace {

// The inputs of a row, in the order of GroupedHeads::queries() and cache().
enum Input : size_t { kQueries, kKeys, kValues };

// Queries and keys are normalised over each head, or over their whole width.
void norm_heads(const Arithmetic& with, Rows heads, const TensorView& weight,
                const GroupedHeads& shape) {
  if (shape.norm != HeadNorm::whole) {
    heads = {heads.data, heads.count * (heads.width / shape.head_dim), shape.head_dim};
  }
  with.ops.rms_norm(heads, heads, weight, with.model.norm_epsilon);
}

}  // namespace

void pre_attention(const Arithmetic& with, const GroupedHeads& shape, const AttentionRows& out,
                   ConstRows normed, const WeightSet& weights, const Rotation& rotation) {
  const Rows& queries = out.parts[kQueries];
  const Rows& keys = out.parts[kKeys];
  const Rows& values = out.parts[kValues];
  // Errors of queries and keys grow in the softmax, and errors of keys and values stay in the
  // cache: their inputs keep more of their fraction.
  const Precision precision =
      with.precision == Precision::bf16 ? Precision::two_bf16 : with.precision;
  const auto project = [&](Rows to, Role weight, Role bias) {
    with.ops.matmul(to, normed, weights[weight], weights[bias], precision);
  };
  project(queries, Role::query, Role::query_bias);
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

void keep(const Arithmetic& with, const GroupedHeads& /*shape*/,
          std::span<const AttendingSequence> sequences) {
  std::vector<KvRows> rows;
  rows.reserve(sequences.size());
  for (const AttendingSequence& sequence : sequences) {
    rows.push_back({keys_and_values(sequence.cache), sequence.past, sequence.inputs.parts[kKeys],
                    sequence.inputs.parts[kValues]});
  }
  with.ops.store_kv(rows);
}

void attention(const Arithmetic& with, const GroupedHeads& shape,
               std::span<const AttendingSequence> sequences, const WeightSet& weights) {
  List<float> sinks(with.ops, 0);
  if (shape.sinks) sinks = floats_of(with.ops, weights[Role::sinks], shape.query_heads);
  // Learned weights that come after rope can make scores large, and rounded queries would move them
  // too far.
  const Precision precision =
      shape.norm == HeadNorm::learned_after_rope ? Precision::f32 : with.precision;
  std::vector<AttentionArguments> arguments;
  arguments.reserve(sequences.size());
  for (const AttendingSequence& sequence : sequences) {
    arguments.push_back({.output = sequence.output,
                         .queries = sequence.inputs.parts[kQueries],
                         .query_heads = shape.query_heads,
                         .kv_heads = shape.kv_heads,
                         .cache = keys_and_values(sequence.cache),
                         .first_position = sequence.past,
                         .scale = shape.scale,
                         .window = shape.window,
                         .chunk = shape.chunk,
                         .sinks = sinks.span(),
                         .precision = precision});
  }
  with.ops.attention(arguments);
}

void project_attended(const Arithmetic& with, const GroupedHeads& /*shape*/, Rows out,
                      ConstRows attended, const WeightSet& weights) {
  with.ops.matmul(out, attended, weights[Role::attention_output],
                  weights[Role::attention_output_bias], with.precision);
}

}  // namespace klotski
