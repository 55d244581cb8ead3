#pragma once

// The signature of every operation, written once. A class declares its version of an operation with
// KLOTSKI_OVERRIDE(name), or of all of them with KLOTSKI_OPERATIONS(KLOTSKI_OVERRIDE).
//
// Outputs may not overlap inputs unless said. Operations are const: they write rows, and a
// processor (ops.h) does not change by it in a way that a caller sees.

// Bytes that operations take for themselves, of ProcessorMemory where that is a device's.
#define KLOTSKI_OPERATION_scratch_bytes uint64_t scratch_bytes(const MostWork& most) const

// Bytes that operations take besides scratch_bytes to expand weights of these formats. Refuses
// (bad_model) a format that they cannot read.
#define KLOTSKI_OPERATION_expansion_bytes                             \
  uint64_t expansion_bytes(const MostWork& most, Precision precision, \
                           std::span<const DType> formats) const

// out[i] = table[tokens[i]]
#define KLOTSKI_OPERATION_embed \
  void embed(Rows out, const TensorView& table, std::span<const TokenId> tokens) const

// out = in / rms(in) * (weight + offset), row by row; out may be in. An empty weight is 1, whatever
// the offset. Where rows are longer than the weight, only their first numbers are read and written.
#define KLOTSKI_OPERATION_rms_norm                                               \
  void rms_norm(Rows out, ConstRows in, const TensorView& weight, float epsilon, \
                float offset = 0.0f) const

// out = (in - mean(in)) / sqrt(variance(in) + epsilon) * weight + bias, row by row; bias may be
// empty, out may be in
#define KLOTSKI_OPERATION_layer_norm                                                        \
  void layer_norm(Rows out, ConstRows in, const TensorView& weight, const TensorView& bias, \
                  float epsilon) const

// out = in * weight^T + bias; weight [out.width][in.width], bias [out.width] or empty
#define KLOTSKI_OPERATION_matmul                                                        \
  void matmul(Rows out, ConstRows in, const TensorView& weight, const TensorView& bias, \
              Precision precision) const

#define KLOTSKI_OPERATION_matmul_by_head void matmul_by_head(const HeadProducts& products) const

// Several experts at once: few rows each leave a single one too little work for many threads.
#define KLOTSKI_OPERATION_experts \
  void experts(std::span<const ExpertProduct> products, Precision precision) const

// Rearranges a matrix of weights, which lies in rows, into the order that experts() and matmul()
// read fastest where it is used again and again: no result depends on it. Returns that order.
#define KLOTSKI_OPERATION_arrange \
  ElementOrder arrange(std::byte* data, DType dtype, const Shape& shape, Precision precision) const

#define KLOTSKI_OPERATION_rope void rope(const RopeArguments& arguments) const

// values = min(max(values, -limit), limit)
#define KLOTSKI_OPERATION_clip void clip(std::span<float> values, float limit) const

// values = values * factor
#define KLOTSKI_OPERATION_scale void scale(std::span<float> values, float factor) const

// Splits each of the heads of a row into parts, which follow each other in a head of `in`.
#define KLOTSKI_OPERATION_split_heads \
  void split_heads(ConstRows in, int64_t heads, std::span<const HeadPart> parts) const

// values = values * function(gates)
#define KLOTSKI_OPERATION_apply_gates \
  void apply_gates(Rows values, ConstRows gates, OutputGate function) const

// Convolution of each channel over the tokens of a sequence, for several sequences; weight
// [channels][taps], the last tap of the token itself.
#define KLOTSKI_OPERATION_causal_convolution                               \
  void causal_convolution(std::span<const ConvolutionArguments> sequences, \
                          const TensorView& weight, Activation activation) const

// The gated delta rule over the tokens of several sequences.
#define KLOTSKI_OPERATION_gated_delta_rule \
  void gated_delta_rule(std::span<const DeltaRuleArguments> sequences, const DeltaRule& rule) const

// Puts keys and values of several sequences into their pages.
#define KLOTSKI_OPERATION_store_kv void store_kv(std::span<const KvRows> sequences) const

// Attention of several sequences, each with its own length.
#define KLOTSKI_OPERATION_attention \
  void attention(std::span<const AttentionArguments> sequences) const

#define KLOTSKI_OPERATION_route void route(const RouteArguments& arguments) const

// The choices of all parts by expert, the choices of one expert in the order of parts and choices:
// in_rows and out_rows of expert 0, then of expert 1, ... Both as long as the parts' choices, as is
// scales, the parts' scales, which is empty where these have none.
#define KLOTSKI_OPERATION_sort_by_expert                                       \
  void sort_by_expert(std::span<const RoutedRows> parts, int64_t experts,      \
                      std::span<int32_t> in_rows, std::span<int32_t> out_rows, \
                      std::span<float> scales) const

// rows[i] *= factors[i]
#define KLOTSKI_OPERATION_scale_rows \
  void scale_rows(Rows rows, std::span<const float> factors) const

// out += in
#define KLOTSKI_OPERATION_add void add(Rows out, ConstRows in) const

// out[i] = in[rows[i]]
#define KLOTSKI_OPERATION_gather \
  void gather(Rows out, ConstRows in, std::span<const int32_t> rows) const

// out[rows[i]] = in[i], no row twice
#define KLOTSKI_OPERATION_scatter \
  void scatter(Rows out, ConstRows in, std::span<const int32_t> rows) const

// out[rows[i]] += in[i], no row twice
#define KLOTSKI_OPERATION_scatter_add \
  void scatter_add(Rows out, ConstRows in, std::span<const int32_t> rows) const

// out[i] += sum over s of weights[i * top_k + s] * results[i * top_k + s], s ascending
#define KLOTSKI_OPERATION_combine \
  void combine(Rows out, ConstRows results, std::span<const float> weights) const

// values = sigmoid(values)
#define KLOTSKI_OPERATION_sigmoid void sigmoid(std::span<float> values) const

// tokens[i] = klotski::most_likely(row i)
#define KLOTSKI_OPERATION_most_likely \
  void most_likely(std::span<TokenId> tokens, ConstRows logits) const

// Calls X(name) for every operation.
// clang-format off
#define KLOTSKI_OPERATIONS(X) \
  X(scratch_bytes) \
  X(expansion_bytes) \
  X(embed) \
  X(rms_norm) \
  X(layer_norm) \
  X(matmul) \
  X(matmul_by_head) \
  X(experts) \
  X(arrange) \
  X(rope) \
  X(clip) \
  X(scale) \
  X(split_heads) \
  X(apply_gates) \
  X(causal_convolution) \
  X(gated_delta_rule) \
  X(store_kv) \
  X(attention) \
  X(route) \
  X(sort_by_expert) \
  X(scale_rows) \
  X(add) \
  X(gather) \
  X(scatter) \
  X(scatter_add) \
  X(combine) \
  X(sigmoid) \
  X(most_likely)
// clang-format on

#define KLOTSKI_PURE(name) virtual KLOTSKI_OPERATION_##name = 0;
#define KLOTSKI_OVERRIDE(name) KLOTSKI_OPERATION_##name override;
