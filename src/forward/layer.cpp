#include "forward/layer.h"

#include <algorithm>

#include "model/rope.h"

namespace klotski {

void Batch::append(KvSequence& kv, std::span<const TokenId> next, LogitsOf logits) {
  sequences.push_back({.kv = &kv,
                       .first_row = rows(),
                       .tokens = static_cast<int64_t>(next.size()),
                       .logits = logits});
  for (size_t i = 0; i < next.size(); ++i) {
    positions.push_back(static_cast<int32_t>(kv.length() + static_cast<int64_t>(i)));
  }
  tokens.insert(tokens.end(), next.begin(), next.end());
}

std::vector<int32_t> Batch::logit_rows() const {
  std::vector<int32_t> rows;
  for (const BatchSequence& sequence : sequences) {
    const int64_t end = sequence.first_row + sequence.tokens;
    const int64_t wanted = sequence.logits == LogitsOf::every_token  ? sequence.tokens
                           : sequence.logits == LogitsOf::last_token ? 1
                                                                     : 0;
    for (int64_t row = end - wanted; row < end; ++row) rows.push_back(static_cast<int32_t>(row));
  }
  return rows;
}

namespace {

Rows slice(Rows rows, const BatchSequence& sequence) {
  return {rows.row(sequence.first_row), sequence.tokens, rows.width};
}

// Queries and keys are normalised over each head, or over their whole width.
void norm_heads(const Forward& forward, Rows heads, const TensorView& weight,
                const Attention& attention) {
  if (attention.norm == HeadNorm::none) return;
  if (attention.norm == HeadNorm::per_head) {
    heads = {heads.data, heads.count * (heads.width / attention.head_dim), attention.head_dim};
  }
  forward.ops.rms_norm(heads, heads, weight, forward.model.norm_epsilon);
}

void clip(Rows rows, float limit) {
  if (limit <= 0.0f) return;
  for (int64_t i = 0; i < rows.count * rows.width; ++i) {
    rows.data[i] = std::clamp(rows.data[i], -limit, limit);
  }
}

std::vector<float> sinks_of(const WeightSet& weights, const Attention& attention,
                            const Ops& ops) {
  if (!attention.sinks) return {};
  std::vector<float> sinks(static_cast<size_t>(attention.query_heads));
  const TokenId first = 0;
  ops.embed({sinks.data(), 1, attention.query_heads}, weights[Role::sinks], std::span(&first, 1));
  return sinks;
}

}  // namespace

void Forward::embed(Rows hidden, const WeightSet& weights, std::span<const TokenId> tokens) const {
  ops.embed(hidden, weights[Role::embedding], tokens);
}

void Forward::attention(Rows hidden, const WeightSet& weights, LayerId layer, const Batch& batch,
                        PagedKvCache& cache) const {
  const Attention& shape = model.layer(layer).attention;
  Buffer normed(hidden.count, hidden.width);
  ops.rms_norm(normed.rows(), hidden, weights[Role::attention_norm], model.norm_epsilon);
  Buffer queries(hidden.count, shape.query_width());
  Buffer keys(hidden.count, shape.kv_width());
  Buffer values(hidden.count, shape.kv_width());
  ops.matmul(queries.rows(), normed.rows(), weights[Role::query], weights[Role::query_bias]);
  ops.matmul(keys.rows(), normed.rows(), weights[Role::key], weights[Role::key_bias]);
  ops.matmul(values.rows(), normed.rows(), weights[Role::value], weights[Role::value_bias]);
  norm_heads(*this, queries.rows(), weights[Role::query_norm], shape);
  norm_heads(*this, keys.rows(), weights[Role::key_norm], shape);
  for (const Rows& rows : {queries.rows(), keys.rows(), values.rows()}) clip(rows, shape.clip);

  const std::vector<float> sinks = sinks_of(weights, shape, ops);
  Buffer attended(hidden.count, shape.query_width());
  for (const BatchSequence& sequence : batch.sequences) {
    const int64_t past = sequence.kv->length();
    const std::vector<float> frequencies = rope_frequencies(model.rope, past + sequence.tokens);
    for (const Rows& heads : {slice(queries.rows(), sequence), slice(keys.rows(), sequence)}) {
      ops.rope({.heads = heads,
                .head_dim = shape.head_dim,
                .positions = std::span(batch.positions).subspan(
                    static_cast<size_t>(sequence.first_row), static_cast<size_t>(sequence.tokens)),
                .frequencies = frequencies,
                .scale = static_cast<float>(model.rope.attention_factor),
                .interleaved = model.rope.interleaved});
    }
    cache.write(*sequence.kv, layer, past, slice(keys.rows(), sequence),
                slice(values.rows(), sequence));
    ops.attention({.output = slice(attended.rows(), sequence),
                   .queries = slice(queries.rows(), sequence),
                   .query_heads = shape.query_heads,
                   .kv_heads = shape.kv_heads,
                   .cache = cache.pages(*sequence.kv, layer),
                   .first_position = past,
                   .scale = shape.scale,
                   .window = shape.window,
                   .sinks = sinks});
  }
  ops.matmul(normed.rows(), attended.rows(), weights[Role::attention_output],
             weights[Role::attention_output_bias]);
  ops.add(hidden, normed.rows());
}

Routing Forward::route(Rows normed, ConstRows hidden, const WeightSet& weights,
                       LayerId layer) const {
  const FeedForward& part = model.layer(layer).feed_forward;
  ops.rms_norm(normed, hidden, weights[Role::feed_forward_norm], model.norm_epsilon);
  Routing routing;
  routing.slots = part.routed ? part.router.top_k : 1;
  routing.experts.assign(static_cast<size_t>(hidden.count * routing.slots), ExpertId(0));
  routing.weights.assign(routing.experts.size(), 1.0f);
  if (!part.routed) return routing;

  Buffer scores(hidden.count, part.experts);
  ops.matmul(scores.rows(), normed, weights[Role::router], TensorView());
  std::vector<float> bias;
  if (part.selection_bias) {
    bias.resize(static_cast<size_t>(part.experts));
    const TokenId first = 0;
    ops.embed({bias.data(), 1, part.experts}, weights[Role::selection_bias], std::span(&first, 1));
  }
  ops.route({.logits = scores.rows(),
             .selection_bias = bias,
             .rule = part.router,
             .experts = routing.experts,
             .weights = routing.weights});
  return routing;
}

namespace {

// out = down(activation(gate(in)) * up(in))
void gated_product(const Forward& forward, Rows out, ConstRows in, const ExpertWeights& weights,
                   Activation activation) {
  const int64_t width = weights.gate.rows();
  Buffer gate(in.count, width);
  Buffer up(in.count, width);
  forward.ops.matmul(gate.rows(), in, weights.gate, TensorView());
  forward.ops.matmul(up.rows(), in, weights.up, TensorView());
  forward.ops.gate(gate.rows(), up.rows(), activation);
  forward.ops.matmul(out, gate.rows(), weights.down, TensorView());
}

}  // namespace

void Forward::run_expert(Rows out, ConstRows in, const ExpertWeights& expert,
                         LayerId layer) const {
  gated_product(*this, out, in, expert, model.layer(layer).feed_forward.activation);
}

void Forward::add_shared_expert(Rows hidden, ConstRows normed, const WeightSet& weights,
                                LayerId layer) const {
  const FeedForward& part = model.layer(layer).feed_forward;
  if (!part.shared) return;
  Buffer output(hidden.count, hidden.width);
  gated_product(*this, output.rows(), normed,
                {weights[Role::shared_gate], weights[Role::shared_up], weights[Role::shared_down]},
                part.activation);
  Buffer scale(hidden.count, 1);
  std::fill(scale.floats().begin(), scale.floats().end(), 1.0f);
  if (part.shared->gated) {
    ops.matmul(scale.rows(), normed, weights[Role::shared_scale], TensorView());
    ops.sigmoid(scale.floats());
  }
  ops.combine(hidden, output.rows(), scale.floats());
}

void Forward::logits(Rows out, ConstRows hidden, const WeightSet& weights,
                     std::span<const int32_t> rows) const {
  Buffer wanted(out.count, hidden.width);
  ops.gather(wanted.rows(), hidden, rows);
  ops.rms_norm(wanted.rows(), wanted.rows(), weights[Role::final_norm], model.norm_epsilon);
  const Role head = model.tied_embeddings ? Role::embedding : Role::output;
  ops.matmul(out, wanted.rows(), weights[head], TensorView());
}

}  // namespace klotski
