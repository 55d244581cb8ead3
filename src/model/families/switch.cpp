// Switch Transformers: an encoder and a decoder in the manner of T5 (scores that are not scaled but
// biased by distance, no other positions, RMS norms) with experts of two matrices, one expert a
// token. transformers counts an expert's capacity a token at a time, so that none is ever dropped.

#include <array>
#include <cmath>

#include "model/families/common.h"
#include "model/families/families.h"

namespace klotski {

namespace {

// Positions that neither the config nor the arithmetic bounds.
constexpr int64_t kSwitchPositions = 1 << 15;
constexpr int64_t kMaxDistance = 1 << 14;

constexpr std::array kSwitchTensors = {
    TensorPattern{Role::embedding, "shared.weight"},
    TensorPattern{Role::final_norm, "decoder.final_layer_norm.weight"},
    TensorPattern{Role::encoder_norm, "encoder.final_layer_norm.weight"},
    TensorPattern{Role::attention_norm, "{half}.block.{layer}.layer.0.layer_norm.weight"},
    TensorPattern{Role::query, "{half}.block.{layer}.layer.0.SelfAttention.q.weight"},
    TensorPattern{Role::key, "{half}.block.{layer}.layer.0.SelfAttention.k.weight"},
    TensorPattern{Role::value, "{half}.block.{layer}.layer.0.SelfAttention.v.weight"},
    TensorPattern{Role::attention_output, "{half}.block.{layer}.layer.0.SelfAttention.o.weight"},
    TensorPattern{Role::position_bias,
                  "{half}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"},
    TensorPattern{Role::cross_norm, "decoder.block.{layer}.layer.1.layer_norm.weight"},
    TensorPattern{Role::cross_query, "decoder.block.{layer}.layer.1.EncDecAttention.q.weight"},
    TensorPattern{Role::cross_key, "decoder.block.{layer}.layer.1.EncDecAttention.k.weight"},
    TensorPattern{Role::cross_value, "decoder.block.{layer}.layer.1.EncDecAttention.v.weight"},
    TensorPattern{Role::cross_output, "decoder.block.{layer}.layer.1.EncDecAttention.o.weight"},
    TensorPattern{Role::feed_forward_norm,
                  "{half}.block.{layer}.layer.{attentions}.layer_norm.weight"},
    TensorPattern{Role::router,
                  "{half}.block.{layer}.layer.{attentions}.mlp.router.classifier.weight"},
    TensorPattern{Role::router_bias,
                  "{half}.block.{layer}.layer.{attentions}.mlp.router.classifier.bias"},
    TensorPattern{Role::expert_gate,
                  "{half}.block.{layer}.layer.{attentions}.mlp.experts.expert_{expert}.wi.weight"},
    TensorPattern{Role::expert_down,
                  "{half}.block.{layer}.layer.{attentions}.mlp.experts.expert_{expert}.wo.weight"},
    TensorPattern{Role::dense_gate, "{half}.block.{layer}.layer.{attentions}.mlp.wi.weight"},
    TensorPattern{Role::dense_down, "{half}.block.{layer}.layer.{attentions}.mlp.wo.weight"},
};

GroupedHeads switch_attention(const JsonFields& config) {
  GroupedHeads attention;
  attention.query_heads = config.integer("num_heads", 1, kMaxWidth);
  attention.kv_heads = attention.query_heads;
  attention.head_dim = config.integer("d_kv", 1, kMaxWidth);
  if (attention.query_width() > kMaxWidth) {
    config.refuse("d_kv", fmt::format("heads of at most {} numbers together", kMaxWidth));
  }
  attention.rotated = false;
  RelativeBias bias;
  bias.buckets = config.integer_or("relative_attention_num_buckets", 32, 4, kMaxDistance);
  bias.most_distance =
      config.integer_or("relative_attention_max_distance", 128, bias.buckets / 2 + 1, kMaxDistance);
  // Every pass has the biases of all heads and distances.
  constexpr int64_t kMostBiases = 1 << 20;
  if (bias.most_distance * attention.query_heads > kMostBiases) {
    config.refuse("relative_attention_max_distance",
                  fmt::format("at most {} for so many heads", kMostBiases / attention.query_heads));
  }
  attention.relative_bias = bias;
  return attention;
}

// The step from one routed layer to the next; published configs have it, older ones the number of
// routed layers.
int64_t sparse_step(const JsonFields& config, std::string_view step, std::string_view routed,
                    int64_t layers) {
  const int64_t count = config.integer_or(routed, 0, 0, layers);
  return config.integer_or(step, count > 0 ? layers / count : layers, 0, kMaxLayers);
}

ModelDescription describe_switch(const JsonFields& config) {
  ModelDescription description;
  description.vocabulary = config.integer("vocab_size", 1, kMaxVocabulary);
  description.hidden = config.integer("d_model", 1, kMaxWidth);
  description.max_positions = kSwitchPositions;
  description.norm_epsilon =
      static_cast<float>(config.number_or("layer_norm_epsilon", 1e-6, 1e-12, 1e-1));
  description.tied_embeddings = config.boolean_or("tie_word_embeddings", true);
  if (description.tied_embeddings) {
    description.logit_scale = 1.0f / std::sqrt(static_cast<float>(description.hidden));
  }
  describe_tokens(config, description);
  refuse_other_router_types(config);
  config.integer_or("expert_capacity", 64, 1, kMaxPositions);

  FeedForward dense;
  dense.width = config.integer("d_ff", 1, kMaxWidth);
  dense.gated = false;
  dense.activation =
      config.has("dense_act_fn") ? describe_activation(config, "dense_act_fn") : Activation::relu;
  FeedForward routed = dense;
  routed.routed = true;
  routed.experts = config.integer("num_experts", 1, kMaxExperts);
  routed.router_bias = config.boolean_or("router_bias", false);

  const int64_t encoder_layers = config.integer("num_layers", 1, kMaxLayers / 2);
  const int64_t decoder_layers =
      config.integer_or("num_decoder_layers", encoder_layers, 1, kMaxLayers / 2);
  description.encoder = {.layers = encoder_layers,
                         .start_token = static_cast<TokenId>(config.integer_or(
                             "decoder_start_token_id", 0, 0, description.vocabulary - 1))};
  GroupedHeads attention = switch_attention(config);
  GroupedHeads encoding = attention;
  encoding.sees_all = true;
  encoding.relative_bias->both_ways = true;
  attention.crosses = true;
  const auto sparse = [](int64_t layers, int64_t step) {
    return SparseLayers{.layers = layers, .step = step, .first = step == 1 ? 0 : 1};
  };
  add_sparse_layers(
      description.layers,
      sparse(encoder_layers, sparse_step(config, "encoder_sparse_step", "num_sparse_encoder_layers",
                                         encoder_layers)),
      {encoding, dense}, routed);
  add_sparse_layers(
      description.layers,
      sparse(decoder_layers, sparse_step(config, "decoder_sparse_step", "num_sparse_decoder_layers",
                                         decoder_layers)),
      {attention, dense}, routed);
  return description;
}

}  // namespace

const Family kSwitch = {"switch_transformers", describe_switch, kSwitchTensors, {}};

}  // namespace klotski
