#include "forward/layer.h"

#include <cmath>
#include <utility>

#include "forward/norm.h"
#include "forward/vector_weights.h"
#include "model/rope.h"

namespace klotski {

namespace {

List<float> filled(const Processor& ops, int64_t count, float value) {
  const std::vector<float> values(static_cast<size_t>(count), value);
  return List(ops, std::span<const float>(values));
}

// A part that is not routed: one expert, the same weight for every row.
Routing everyone_to_one(const Processor& ops, int64_t rows, float weight) {
  const std::vector<ExpertId> experts(static_cast<size_t>(rows), ExpertId(0));
  return {.top_k = 1,
          .experts = List(ops, std::span<const ExpertId>(experts)),
          .weights = filled(ops, rows, weight),
          .scales = List<float>(ops, 0),
          .gaps = List<float>(ops, 0),
          .chosen = experts};
}

// Factors of queries that grow with the logarithm of their position.
List<float> temperatures_of(const Arithmetic& with, const Batch& batch) {
  const std::optional<QueryTemperature>& rule = with.model.query_temperature;
  std::vector<float> factors;
  for (size_t i = 0; rule && i < batch.positions.size(); ++i) {
    const int64_t steps = (int64_t{batch.positions[i]} + 1) / rule->step_positions;
    factors.push_back(
        static_cast<float>(std::log1p(static_cast<double>(steps)) * rule->growth + 1.0));
  }
  return List(with.ops, std::span<const float>(factors));
}

// Adds sines of each row's position in the first half of its numbers, cosines in the second, whose
// frequencies fall from 1 to 1e-4 radians a position.
void add_sinusoids(const Arithmetic& with, Rows hidden, std::span<const int32_t> positions) {
  const int64_t half = hidden.width / 2;
  std::vector<float> values(static_cast<size_t>(hidden.count * hidden.width));
  std::vector<double> frequencies(static_cast<size_t>(half));
  for (int64_t i = 0; i < half; ++i) {
    frequencies[static_cast<size_t>(i)] =
        std::exp(-std::log(1e4) / static_cast<double>(half - 1) * static_cast<double>(i));
  }
  with.ops.parallel_for(hidden.count, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const auto position =
          static_cast<double>(*with.model.first_sinusoid + positions[static_cast<size_t>(row)]);
      float* out = values.data() + row * hidden.width;
      for (int64_t i = 0; i < half; ++i) {
        const double angle = position * frequencies[static_cast<size_t>(i)];
        out[i] = static_cast<float>(std::sin(angle));
        out[half + i] = static_cast<float>(std::cos(angle));
      }
    }
  });
  List sinusoids(with.ops, std::span<const float>(values));
  with.ops.add(hidden, {sinusoids.span().data(), hidden.count, hidden.width});
}

// values = values * factor, where that changes them
void scale_values(const Arithmetic& with, Rows rows, float factor) {
  if (factor == 1.0f) return;
  with.ops.scale({rows.data, static_cast<size_t>(rows.count * rows.width)}, factor);
}

}  // namespace

void embed(const Arithmetic& with, Rows hidden, const WeightSet& model_weights,
           std::span<const TokenId> tokens, std::span<const int32_t> positions) {
  with.ops.embed(hidden, model_weights[Role::embedding], List(with.ops, tokens).span());
  scale_values(with, hidden, with.model.embedding_scale);
  if (with.model.first_sinusoid) add_sinusoids(with, hidden, positions);
}

Rotation rotation_of(const Arithmetic& with, const Batch& batch) {
  const Rope& rope = with.model.rope;
  std::vector<float> frequencies;
  std::vector<int32_t> tables;
  int32_t table = -1;
  int64_t pairs = 0;
  for (const BatchSequence& sequence : batch.sequences) {
    if (table < 0 || frequencies_depend_on_length(rope)) {
      const std::vector<float> own = rope_frequencies(rope, sequence.length);
      pairs = std::ssize(own);
      frequencies.insert(frequencies.end(), own.begin(), own.end());
      ++table;
    }
    tables.insert(tables.end(), static_cast<size_t>(sequence.tokens), table);
  }
  return {.pairs = pairs,
          .positions = List(with.ops, std::span<const int32_t>(batch.positions)),
          .frequencies = List(with.ops, std::span<const float>(frequencies)),
          .tables = List(with.ops, std::span<const int32_t>(tables)),
          .temperatures = temperatures_of(with, batch)};
}

void post_attention(const Arithmetic& with, Rows hidden, ConstRows attended,
                    const WeightSet& weights, LayerId layer) {
  Buffer projected(with.ops, hidden.count, hidden.width);
  project_attended(with, projected.rows(), attended, weights, layer);
  scale_values(with, projected.rows(), with.model.residual_scale);
  with.ops.add(hidden, projected.rows());
}

void norm_beside_attention(const Arithmetic& with, Rows normed, ConstRows hidden,
                           const WeightSet& weights, LayerId layer) {
  if (!with.model.layer(layer).feed_forward.beside_attention) return;
  norm_rows(with, normed, hidden, weights[Role::feed_forward_norm],
            weights[Role::feed_forward_norm_bias]);
}

Routing route(const Arithmetic& with, Rows normed, ConstRows hidden, const WeightSet& weights,
              LayerId layer, std::span<const ExpertId> given) {
  const FeedForward& part = with.model.layer(layer).feed_forward;
  if (!part.beside_attention) {
    norm_rows(with, normed, hidden, weights[Role::feed_forward_norm],
              weights[Role::feed_forward_norm_bias]);
  }
  const float residual = with.model.residual_scale;
  if (!part.routed) return everyone_to_one(with.ops, hidden.count, residual);

  const int64_t choices = hidden.count * part.router.top_k;
  Routing routing{.top_k = part.router.top_k,
                  .experts = List<ExpertId>(with.ops, choices),
                  .weights = List<float>(with.ops, choices),
                  .scales = List<float>(with.ops, 0),
                  .gaps = List<float>(with.ops, with.router_gaps ? hidden.count : 0)};
  Buffer scores(with.ops, hidden.count, part.experts);
  with.ops.matmul(scores.rows(), normed, weights[Role::router], weights[Role::router_bias],
                  Precision::f32);
  List<float> bias(with.ops, 0);
  if (part.selection_bias) {
    bias = floats_of(with.ops, weights[Role::selection_bias], part.experts);
  }
  RouterRule rule = part.router;
  rule.scale *= residual;
  with.ops.route({.logits = scores.rows(),
                  .selection_bias = bias.span(),
                  .rule = rule,
                  .experts = routing.experts.span(),
                  .weights = routing.weights.span(),
                  .gaps = routing.gaps.span()});
  std::vector<ExpertId> computing;
  if (!part.computing.empty()) {
    for (int64_t row = 0; row < hidden.count; ++row) {
      computing.insert(computing.end(), part.computing.begin(), part.computing.end());
    }
    given = computing;
  }
  if (!given.empty()) routing.experts = List(with.ops, given);
  if (part.scales_inputs) {
    routing.scales = std::exchange(routing.weights, filled(with.ops, choices, 1.0f));
    routing.coming_scales.emplace(with.ops, routing.scales);
  }
  routing.coming.emplace(with.ops, routing.experts);
  if (with.router_gaps) {
    routing.coming_gaps.emplace(with.ops, routing.gaps);
    routing.coming_weights.emplace(with.ops, routing.weights);
  }
  return routing;
}

void read_choices(Routing& routing) {
  if (routing.coming) routing.chosen = routing.coming->take();
  if (routing.coming_gaps) routing.chosen_gaps = routing.coming_gaps->take();
  if (routing.coming_scales) routing.chosen_scales = routing.coming_scales->take();
  if (routing.coming_weights) routing.chosen_weights = routing.coming_weights->take();
  routing.coming.reset();
  routing.coming_gaps.reset();
  routing.coming_scales.reset();
  routing.coming_weights.reset();
}

void run_experts(const Arithmetic& with, Rows out, ConstRows in,
                 std::span<const ChosenExpert> experts, LayerId layer) {
  const FeedForward& part = with.model.layer(layer).feed_forward;
  std::vector<ExpertProduct> products;
  products.reserve(experts.size());
  for (const ChosenExpert& expert : experts) {
    if (expert.in_rows.empty()) continue;  // kernels take an empty list for all rows
    products.push_back({.out = out,
                        .in = in,
                        .out_rows = expert.out_rows,
                        .in_rows = expert.in_rows,
                        .gate = expert.weights.gate,
                        .up = expert.weights.up,
                        .down = expert.weights.down,
                        .activation = part.activation,
                        .swiglu = part.swiglu,
                        .in_scales = expert.in_scales,
                        .gate_bias = expert.weights.gate_bias,
                        .up_bias = expert.weights.up_bias,
                        .down_bias = expert.weights.down_bias});
  }
  with.ops.experts(products, with.precision);
}

void add_shared_expert(const Arithmetic& with, Rows hidden, ConstRows normed,
                       const WeightSet& weights, LayerId layer) {
  const FeedForward& part = with.model.layer(layer).feed_forward;
  if (!part.shared) return;
  Buffer output(with.ops, hidden.count, hidden.width);
  Buffer own(with.ops, part.shared->own_norm ? hidden.count : 0, hidden.width);
  if (part.shared->own_norm) {
    norm_rows(with, own.rows(), hidden, weights[Role::shared_norm], TensorView());
    normed = own.rows();
  }
  const ExpertProduct product{.out = output.rows(),
                              .in = normed,
                              .out_rows = {},
                              .in_rows = {},
                              .gate = weights[Role::shared_gate],
                              .up = weights[Role::shared_up],
                              .down = weights[Role::shared_down],
                              .activation = part.activation};
  with.ops.experts(std::span(&product, 1), with.precision);
  scale_values(with, output.rows(), with.model.residual_scale);
  if (!part.shared->gated) return with.ops.add(hidden, output.rows());
  Buffer scale(with.ops, hidden.count, 1);
  with.ops.matmul(scale.rows(), normed, weights[Role::shared_scale], TensorView(), Precision::f32);
  with.ops.sigmoid(scale.floats());
  with.ops.combine(hidden, output.rows(), scale.floats());
}

void logits(const Arithmetic& with, Rows out, ConstRows hidden, const WeightSet& model_weights,
            std::span<const int32_t> rows) {
  Buffer wanted(with.ops, out.count, hidden.width);
  with.ops.gather(wanted.rows(), hidden, List(with.ops, rows).span());
  norm_rows(with, wanted.rows(), wanted.rows(), model_weights[Role::final_norm],
            model_weights[Role::final_norm_bias]);
  const Role head = with.model.tied_embeddings ? Role::embedding : Role::output;
  with.ops.matmul(out, wanted.rows(), model_weights[head], model_weights[Role::output_bias],
                  with.precision);
  scale_values(with, out, with.model.logit_scale);
}

}  // namespace klotski
