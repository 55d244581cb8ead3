#include "forward/gated_delta_net.h"

#include <array>

#include "forward/joined_rows.h"

namespace klotski {

namespace {

// The inputs of a row, in the order of GatedDeltaNet::queries().
enum DeltaInput : size_t { kMixed, kOutputGates, kRates };

// Errors of keys and values stay in the state: inputs of their projection keep more of their
// fraction.
Precision state_precision(const Arithmetic& with) {
  return with.precision == Precision::bf16 ? Precision::two_bf16 : with.precision;
}

// The numbers of a sequence's state: matrices of the heads, then the last inputs of the
// convolution.
const float* committed_numbers(const LayerCache& cache) {
  return cache.state.empty() ? nullptr : reinterpret_cast<const float*>(cache.state.data());
}
float* next_numbers(const LayerCache& cache) {
  return reinterpret_cast<float*>(cache.next_state.data());
}

void convolve(const Arithmetic& with, const GatedDeltaNet& shape, Rows convolved,
              std::span<const AttendingSequence> sequences, const WeightSet& weights) {
  std::vector<ConvolutionArguments> arguments;
  arguments.reserve(sequences.size());
  int64_t first = 0;
  for (const AttendingSequence& sequence : sequences) {
    const Rows& in = sequence.inputs.parts[kMixed];
    const float* state = committed_numbers(sequence.cache);
    arguments.push_back({.out = {convolved.row(first), in.count, in.width},
                         .in = in,
                         .past = state ? state + shape.matrix_numbers() : nullptr,
                         .next = next_numbers(sequence.cache) + shape.matrix_numbers()});
    first += in.count;
  }
  with.ops.causal_convolution(arguments, weights[Role::delta_convolution], shape.activation);
}

void update_states(const Arithmetic& with, const GatedDeltaNet& shape, Rows convolved,
                   std::span<const AttendingSequence> sequences, const WeightSet& weights) {
  std::vector<DeltaRuleArguments> arguments;
  arguments.reserve(sequences.size());
  int64_t first = 0;
  for (const AttendingSequence& sequence : sequences) {
    const int64_t count = sequence.output.count;
    arguments.push_back({.out = sequence.output,
                         .mixed = {convolved.row(first), count, convolved.width},
                         .rates = sequence.inputs.parts[kRates],
                         .state = committed_numbers(sequence.cache),
                         .next_state = next_numbers(sequence.cache)});
    first += count;
  }
  with.ops.gated_delta_rule(arguments, {.key_heads = shape.key_heads,
                                        .value_heads = shape.value_heads,
                                        .key_dim = shape.key_dim,
                                        .value_dim = shape.value_dim,
                                        .log_decay = weights[Role::delta_log_decay],
                                        .step_bias = weights[Role::delta_step_bias]});
}

}  // namespace

void pre_attention(const Arithmetic& with, const GatedDeltaNet& shape, const AttentionRows& out,
                   ConstRows normed, const WeightSet& weights, const Rotation& /*rotation*/) {
  const int64_t values = shape.value_width() / shape.key_heads;  // numbers of a key head's values
  const Rows& mixed = out.parts[kMixed];
  Buffer projected(with.ops, normed.count, shape.projection_rows());
  with.ops.matmul(projected.rows(), normed, weights[Role::delta_input], TensorView(),
                  state_precision(with));
  const std::array parts = {
      HeadPart{mixed, 0, shape.key_dim}, HeadPart{mixed, shape.key_width(), shape.key_dim},
      HeadPart{mixed, 2 * shape.key_width(), values}, HeadPart{out.parts[kOutputGates], 0, values}};
  with.ops.split_heads(projected.rows(), shape.key_heads, parts);

  // Errors of decays grow with every token that a state outlives.
  const Rows& rates = out.parts[kRates];
  const int64_t heads = shape.value_heads / shape.key_heads;
  Buffer both(with.ops, normed.count, shape.rate_rows());
  with.ops.matmul(both.rows(), normed, weights[Role::delta_rates], TensorView(), Precision::f32);
  const std::array halves = {HeadPart{rates, 0, heads}, HeadPart{rates, shape.value_heads, heads}};
  with.ops.split_heads(both.rows(), shape.key_heads, halves);
}

void keep(const Arithmetic& /*with*/, const GatedDeltaNet& /*shape*/,
          std::span<const AttendingSequence> /*sequences*/) {}

void attention(const Arithmetic& with, const GatedDeltaNet& shape,
               std::span<const AttendingSequence> sequences, const WeightSet& weights) {
  int64_t rows = 0;
  for (const AttendingSequence& sequence : sequences) rows += sequence.output.count;
  Buffer convolved(with.ops, rows, shape.mixed_width());
  convolve(with, shape, convolved.rows(), sequences, weights);
  update_states(with, shape, convolved.rows(), sequences, weights);
  for (const JoinedRows& joined : joined_rows(sequences, kOutputGates)) {
    const Rows heads{joined.output.data, joined.output.count * shape.value_heads, shape.value_dim};
    with.ops.rms_norm(heads, heads, weights[Role::delta_norm], with.model.norm_epsilon);
    with.ops.apply_gates(joined.output, joined.input, OutputGate::silu);
  }
}

void project_attended(const Arithmetic& with, const GatedDeltaNet& /*shape*/, Rows out,
                      ConstRows attended, const WeightSet& weights) {
  with.ops.matmul(out, attended, weights[Role::delta_output], TensorView(), with.precision);
}

}  // namespace klotski
