#include "forward/layer.h"

#include <algorithm>

#include "model/rope.h"

namespace klotski {

namespace {

// A vector of weights as floats.
std::vector<float> floats_of(const Ops& ops, const TensorView& vector, int64_t size) {
  std::vector<float> values(static_cast<size_t>(size));
  const TokenId first_row = 0;
  ops.embed({values.data(), 1, size}, vector, std::span(&first_row, 1));
  return values;
}

// Queries and keys are normalised over each head, or over their whole width.
void norm_heads(const Arithmetic& with, Rows heads, const TensorView& weight,
                const Attention& shape) {
  if (shape.norm == HeadNorm::none) return;
  if (shape.norm == HeadNorm::per_head) {
    heads = {heads.data, heads.count * (heads.width / shape.head_dim), shape.head_dim};
  }
  with.ops.rms_norm(heads, heads, weight, with.model.norm_epsilon);
}

void clip(std::span<float> values, float limit) {
  if (limit <= 0.0f) return;
  for (float& value : values) value = std::clamp(value, -limit, limit);
}

}  // namespace

void embed(const Arithmetic& with, Rows hidden, const WeightSet& model_weights,
           std::span<const TokenId> tokens) {
  with.ops.embed(hidden, model_weights[Role::embedding], tokens);
}

AttentionInputs pre_attention(const Arithmetic& with, ConstRows hidden, const WeightSet& weights,
                              LayerId layer, const Batch& batch) {
  const Attention& shape = with.model.layer(layer).attention;
  Buffer normed(hidden.count, hidden.width);
  with.ops.rms_norm(normed.rows(), hidden, weights[Role::attention_norm], with.model.norm_epsilon);
  AttentionInputs inputs{.queries = Buffer(hidden.count, shape.query_width()),
                         .keys = Buffer(hidden.count, shape.kv_width()),
                         .values = Buffer(hidden.count, shape.kv_width())};
  with.ops.matmul(inputs.queries.rows(), normed.rows(), weights[Role::query],
                  weights[Role::query_bias], with.precision);
  with.ops.matmul(inputs.keys.rows(), normed.rows(), weights[Role::key], weights[Role::key_bias],
                  with.precision);
  with.ops.matmul(inputs.values.rows(), normed.rows(), weights[Role::value],
                  weights[Role::value_bias], with.precision);
  norm_heads(with, inputs.queries.rows(), weights[Role::query_norm], shape);
  norm_heads(with, inputs.keys.rows(), weights[Role::key_norm], shape);
  clip(inputs.queries.floats(), shape.clip);
  clip(inputs.keys.floats(), shape.clip);
  clip(inputs.values.floats(), shape.clip);

  const Rope& rope = with.model.rope;
  for (const BatchSequence& sequence : batch.sequences) {
    // Frequencies may depend on the length of this sequence, never on the others' or on how a
    // prompt was cut into pieces.
    const std::vector<float> frequencies = rope_frequencies(rope, sequence.length);
    for (Buffer* heads : {&inputs.queries, &inputs.keys}) {
      with.ops.rope({.heads = heads->rows(sequence),
                     .head_dim = shape.head_dim,
                     .positions = std::span(batch.positions)
                                      .subspan(static_cast<size_t>(sequence.first_row),
                                               static_cast<size_t>(sequence.tokens)),
                     .frequencies = frequencies,
                     .scale = static_cast<float>(rope.attention_factor),
                     .interleaved = rope.interleaved});
    }
  }
  return inputs;
}

void attention(const Arithmetic& with, std::span<const AttendingSequence> sequences,
               const WeightSet& weights, LayerId layer) {
  const Attention& shape = with.model.layer(layer).attention;
  std::vector<float> sinks;
  if (shape.sinks) sinks = floats_of(with.ops, weights[Role::sinks], shape.query_heads);
  std::vector<AttentionArguments> arguments;
  arguments.reserve(sequences.size());
  for (const AttendingSequence& sequence : sequences) {
    arguments.push_back({.output = sequence.output,
                         .queries = sequence.queries,
                         .query_heads = shape.query_heads,
                         .kv_heads = shape.kv_heads,
                         .cache = sequence.cache,
                         .first_position = sequence.past,
                         .scale = shape.scale,
                         .window = shape.window,
                         .sinks = sinks,
                         .precision = with.precision});
  }
  with.ops.attention(arguments);
}

void post_attention(const Arithmetic& with, Rows hidden, ConstRows attended,
                    const WeightSet& weights) {
  Buffer projected(hidden.count, hidden.width);
  with.ops.matmul(projected.rows(), attended, weights[Role::attention_output],
                  weights[Role::attention_output_bias], with.precision);
  with.ops.add(hidden, projected.rows());
}

Routing route(const Arithmetic& with, Rows normed, ConstRows hidden, const WeightSet& weights,
              LayerId layer) {
  const FeedForward& part = with.model.layer(layer).feed_forward;
  with.ops.rms_norm(normed, hidden, weights[Role::feed_forward_norm], with.model.norm_epsilon);
  Routing routing;
  routing.slots = part.routed ? part.router.top_k : 1;
  routing.experts.assign(static_cast<size_t>(hidden.count * routing.slots), ExpertId(0));
  routing.weights.assign(routing.experts.size(), 1.0f);
  if (!part.routed) return routing;

  if (with.router_gaps) routing.gaps.resize(static_cast<size_t>(hidden.count));
  Buffer scores(hidden.count, part.experts);
  with.ops.matmul(scores.rows(), normed, weights[Role::router], TensorView(), Precision::f32);
  std::vector<float> bias;
  if (part.selection_bias) {
    bias = floats_of(with.ops, weights[Role::selection_bias], part.experts);
  }
  with.ops.route({.logits = scores.rows(),
                  .selection_bias = bias,
                  .rule = part.router,
                  .experts = routing.experts,
                  .weights = routing.weights,
                  .gaps = routing.gaps});
  return routing;
}

void run_experts(const Arithmetic& with, Rows out, ConstRows in,
                 std::span<const ChosenExpert> experts, LayerId layer) {
  std::vector<ExpertProduct> products;
  products.reserve(experts.size());
  for (const ChosenExpert& expert : experts) {
    if (expert.in_rows.empty()) continue;  // to the kernels no list means all rows
    products.push_back({.out = out,
                        .in = in,
                        .out_rows = expert.out_rows,
                        .in_rows = expert.in_rows,
                        .gate = expert.weights.gate,
                        .up = expert.weights.up,
                        .down = expert.weights.down,
                        .activation = with.model.layer(layer).feed_forward.activation});
  }
  with.ops.experts(products, with.precision);
}

void add_shared_expert(const Arithmetic& with, Rows hidden, ConstRows normed,
                       const WeightSet& weights, LayerId layer) {
  const FeedForward& part = with.model.layer(layer).feed_forward;
  if (!part.shared) return;
  Buffer output(hidden.count, hidden.width);
  const ExpertProduct product{.out = output.rows(),
                              .in = normed,
                              .out_rows = {},
                              .in_rows = {},
                              .gate = weights[Role::shared_gate],
                              .up = weights[Role::shared_up],
                              .down = weights[Role::shared_down],
                              .activation = part.activation};
  with.ops.experts(std::span(&product, 1), with.precision);
  Buffer scale(hidden.count, 1);
  std::fill(scale.floats().begin(), scale.floats().end(), 1.0f);
  if (part.shared->gated) {
    with.ops.matmul(scale.rows(), normed, weights[Role::shared_scale], TensorView(),
                    Precision::f32);
    with.ops.sigmoid(scale.floats());
  }
  with.ops.combine(hidden, output.rows(), scale.floats());
}

void logits(const Arithmetic& with, Rows out, ConstRows hidden, const WeightSet& model_weights,
            std::span<const int32_t> rows) {
  Buffer wanted(out.count, hidden.width);
  with.ops.gather(wanted.rows(), hidden, rows);
  with.ops.rms_norm(wanted.rows(), wanted.rows(), model_weights[Role::final_norm],
                    with.model.norm_epsilon);
  const Role head = with.model.tied_embeddings ? Role::embedding : Role::output;
  with.ops.matmul(out, wanted.rows(), model_weights[head], TensorView(), with.precision);
}

}  // namespace klotski
