// The gated delta rule and the operations that surround it, shared out to the compute threads:
// rows, or some columns of a head's state of one sequence.

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "kernels/cpu/cpu_processor.h"
#include "kernels/reference/weight_row.h"

namespace klotski::cpu {

namespace {

constexpr float kLengthEpsilon = 1e-6f;  // added to squared lengths of queries and keys
constexpr int64_t kStateColumns = 64;    // columns of a state that one piece of work has

// A row of one of several sequences.
struct SequenceRow {
  size_t sequence;
  int64_t row;
};

template <typename Arguments, typename Count>
std::vector<SequenceRow> rows_of_all(std::span<const Arguments> sequences, const Count& count) {
  std::vector<SequenceRow> rows;
  for (size_t s = 0; s < sequences.size(); ++s) {
    for (int64_t row = 0; row < count(sequences[s]); ++row) rows.push_back({s, row});
  }
  return rows;
}

std::vector<float> floats_of_vector(const TensorView& vector, int64_t size) {
  std::vector<float> values(static_cast<size_t>(size));
  for (int64_t i = 0; i < size; ++i) {
    values[static_cast<size_t>(i)] = reference::load_element(vector, i);
  }
  return values;
}

void scale_to_length(const Kernels& kernels, float* vector, int64_t size, float length) {
  const float squares = kernels.sum_of_squares(vector, size);
  kernels.scale(vector, size, length / std::sqrt(squares + kLengthEpsilon));
}

// Parameters of the decays of value heads.
struct DecayParameters {
  std::vector<float> log_decay;
  std::vector<float> step_bias;
};

void prepare_delta_row(const Kernels& kernels, const DeltaRule& rule,
                       const DecayParameters& parameters, float* mixed, float* rates) {
  const float query_length = 1.0f / std::sqrt(static_cast<float>(rule.key_dim));
  for (int64_t head = 0; head < rule.key_heads; ++head) {
    float* query = mixed + head * rule.key_dim;
    scale_to_length(kernels, query, rule.key_dim, query_length);
    scale_to_length(kernels, query + rule.key_width(), rule.key_dim, 1.0f);
  }
  for (size_t head = 0; head < parameters.log_decay.size(); ++head) {
    float& step = rates[static_cast<size_t>(rule.value_heads) + head];
    rates[head] = reference::sigmoid_of(rates[head]);
    step = reference::decay_of(parameters.log_decay[head], step + parameters.step_bias[head]);
  }
}

// Columns of a head's state that one piece of work has.
struct StateColumns {
  int64_t first;  // number of the first one in a state
  int64_t count;
  int64_t stride;  // numbers from one row of the state to the next
  int64_t keys;    // rows

  // Brings the columns before the tokens to rows that follow each other: in a state they lie a
  // power of two apart, and would drive each other out of the first-level cache.
  void take(const float* state, float* rows) const {
    if (state == nullptr) std::fill_n(rows, keys * count, 0.0f);
    for (int64_t i = 0; state && i < keys; ++i) {
      std::copy_n(state + first + i * stride, count, rows + i * count);
    }
  }
  void give_back(const float* rows, float* state) const {
    for (int64_t i = 0; i < keys; ++i) {
      std::copy_n(rows + i * count, count, state + first + i * stride);
    }
  }
};

// `scratch`: room for kStateColumns columns.
void update_state(const Kernels& kernels, const DeltaRule& rule, const DeltaRuleArguments& sequence,
                  int64_t head, int64_t begin, float* scratch) {
  const StateColumns own{.first = head * rule.key_dim * rule.value_dim + begin,
                         .count = std::min(kStateColumns, rule.value_dim - begin),
                         .stride = rule.value_dim,
                         .keys = rule.key_dim};
  own.take(sequence.state, scratch);
  const int64_t key_head = head / (rule.value_heads / rule.key_heads);
  const float* queries = sequence.mixed.data + key_head * rule.key_dim;
  const int64_t column = head * rule.value_dim + begin;
  kernels.delta_rule({.state = scratch,
                      .state_stride = own.count,
                      .keys = rule.key_dim,
                      .columns = own.count,
                      .tokens = sequence.mixed.count,
                      .queries = queries,
                      .key_rows = queries + rule.key_width(),
                      .values = sequence.mixed.data + 2 * rule.key_width() + column,
                      .row_stride = sequence.mixed.width,
                      .updates = sequence.rates.data + head,
                      .decays = sequence.rates.data + rule.value_heads + head,
                      .rate_stride = sequence.rates.width,
                      .out = sequence.out.data + column,
                      .out_stride = sequence.out.width});
  own.give_back(scratch, sequence.next_state);
}

// The weights of a convolution tap by tap, [taps][channels], and what its rows are multiplied by
// after their activation.
struct Taps {
  std::vector<float> weights;
  std::vector<float> ones;
  int64_t count;
  Activation activation;
};

Taps taps_of(const TensorView& weight, Activation activation) {
  const int64_t channels = weight.rows();
  const int64_t count = weight.columns();
  Taps taps{.weights = std::vector<float>(static_cast<size_t>(channels * count)),
            .ones = std::vector<float>(static_cast<size_t>(channels), 1.0f),
            .count = count,
            .activation = activation};
  for (int64_t i = 0; i < channels * count; ++i) {
    taps.weights[static_cast<size_t>(i % count * channels + i / count)] =
        reference::load_element(weight, i);
  }
  return taps;
}

// Inputs of the token `back` tokens before one; null: zeros.
const float* inputs_before(const ConvolutionArguments& sequence, int64_t taps, int64_t token,
                           int64_t back) {
  if (token >= back) return sequence.in.row(token - back);
  return sequence.past ? sequence.past + (taps - 1 + token - back) * sequence.in.width : nullptr;
}

void activate_row(const Kernels& kernels, float* row, const Taps& taps) {
  const auto channels = static_cast<int64_t>(taps.ones.size());
  switch (taps.activation) {
    case Activation::silu:
      return kernels.gate(row, taps.ones.data(), channels, GateFunction::silu);
    case Activation::gelu_tanh:
      return kernels.gate(row, taps.ones.data(), channels, GateFunction::gelu_tanh);
    case Activation::relu:
      return kernels.gate(row, taps.ones.data(), channels, GateFunction::relu);
    default:
      return reference::gate({row, 1, channels}, {taps.ones.data(), 1, channels}, taps.activation);
  }
}

void convolve_row(const Kernels& kernels, const ConvolutionArguments& sequence, const Taps& taps,
                  int64_t token) {
  const int64_t channels = sequence.in.width;
  float* out = sequence.out.row(token);
  std::fill_n(out, channels, 0.0f);
  for (int64_t tap = 0; tap < taps.count; ++tap) {
    const float* in = inputs_before(sequence, taps.count, token, taps.count - 1 - tap);
    const float* weight = taps.weights.data() + tap * channels;
    for (int64_t c = 0; in && c < channels; ++c) out[c] += weight[c] * in[c];
  }
  activate_row(kernels, out, taps);
}

void keep_inputs(const ConvolutionArguments& sequence, int64_t taps) {
  const int64_t channels = sequence.in.width;
  for (int64_t back = 0; back < taps - 1; ++back) {
    float* kept = sequence.next + (taps - 2 - back) * channels;
    const float* in = inputs_before(sequence, taps, sequence.in.count - 1, back);
    if (in) {
      std::copy_n(in, channels, kept);
    } else {
      std::fill_n(kept, channels, 0.0f);
    }
  }
}

}  // namespace

void CpuProcessor::split_heads(ConstRows in, int64_t heads, std::span<const HeadPart> parts) const {
  share_out(machine(), in.count, in.width, [&](int64_t begin, int64_t end) {
    std::vector<HeadPart> own(parts.begin(), parts.end());
    for (HeadPart& part : own) part.out = {part.out.row(begin), end - begin, part.out.width};
    ReferenceProcessor::split_heads({in.row(begin), end - begin, in.width}, heads, own);
  });
}

void CpuProcessor::apply_gates(Rows values, ConstRows gates, OutputGate function) const {
  constexpr int64_t kPiece = 256;  // numbers
  const Machine with = machine();
  const GateFunction gate =
      function == OutputGate::silu ? GateFunction::silu : GateFunction::sigmoid;
  share_out(with, values.count, values.width * 8, [&](int64_t begin, int64_t end) {
    std::array<float, kPiece> piece;
    for (int64_t i = begin * values.width; i < end * values.width; i += kPiece) {
      const int64_t count = std::min(kPiece, end * values.width - i);
      std::copy_n(gates.data + i, count, piece.data());
      with.kernels.gate(piece.data(), values.data + i, count, gate);
      std::copy_n(piece.data(), count, values.data + i);
    }
  });
}

void CpuProcessor::causal_convolution(std::span<const ConvolutionArguments> sequences,
                                      const TensorView& weight, Activation activation) const {
  const Machine with = machine();
  const Taps taps = taps_of(weight, activation);
  const auto rows = rows_of_all(sequences, [](const auto& one) { return one.in.count; });
  share_out(with, std::ssize(rows), weight.rows() * (taps.count + 8),
            [&](int64_t begin, int64_t end) {
              for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
                convolve_row(with.kernels, sequences[rows[i].sequence], taps, rows[i].row);
              }
            });
  for (const ConvolutionArguments& sequence : sequences) keep_inputs(sequence, taps.count);
}

void CpuProcessor::gated_delta_rule(std::span<const DeltaRuleArguments> sequences,
                                    const DeltaRule& rule) const {
  const Machine with = machine();
  const DecayParameters parameters{floats_of_vector(rule.log_decay, rule.value_heads),
                                   floats_of_vector(rule.step_bias, rule.value_heads)};
  const auto rows = rows_of_all(sequences, [](const auto& one) { return one.mixed.count; });
  share_out(with, std::ssize(rows), 2 * rule.key_width(), [&](int64_t begin, int64_t end) {
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
      const DeltaRuleArguments& sequence = sequences[rows[i].sequence];
      prepare_delta_row(with.kernels, rule, parameters, sequence.mixed.row(rows[i].row),
                        sequence.rates.row(rows[i].row));
    }
  });
  const int64_t blocks = (rule.value_dim + kStateColumns - 1) / kStateColumns;
  const int64_t pieces = std::ssize(sequences) * rule.value_heads * blocks;
  const int64_t tokens = std::ssize(rows) / std::max<int64_t>(std::ssize(sequences), 1) + 1;
  share_out(with, pieces, tokens * rule.key_dim * 2 * std::min(rule.value_dim, kStateColumns),
            [&](int64_t begin, int64_t end) {
              std::vector<float> scratch(static_cast<size_t>(rule.key_dim * kStateColumns));
              for (int64_t piece = begin; piece < end; ++piece) {
                const int64_t of_sequence = piece % (rule.value_heads * blocks);
                const auto sequence = static_cast<size_t>(piece / (rule.value_heads * blocks));
                update_state(with.kernels, rule, sequences[sequence], of_sequence / blocks,
                             of_sequence % blocks * kStateColumns, scratch.data());
              }
            });
}

}  // namespace klotski::cpu
