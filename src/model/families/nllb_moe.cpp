// NLLB-MoE: a translating encoder and decoder with LayerNorm, biases and sinusoidal positions,
// experts of two matrices, two experts a token.

#include <array>
#include <cmath>

#include "model/families/common.h"
#include "model/families/families.h"

namespace klotski {

namespace {

constexpr std::array kNllbTensors = {
    TensorPattern{Role::embedding, "model.shared.weight"},
    TensorPattern{Role::final_norm, "model.decoder.layer_norm.weight"},
    TensorPattern{Role::final_norm_bias, "model.decoder.layer_norm.bias"},
    TensorPattern{Role::encoder_norm, "model.encoder.layer_norm.weight"},
    TensorPattern{Role::encoder_norm_bias, "model.encoder.layer_norm.bias"},
    TensorPattern{Role::attention_norm, "model.{half}.layers.{layer}.self_attn_layer_norm.weight"},
    TensorPattern{Role::attention_norm_bias,
                  "model.{half}.layers.{layer}.self_attn_layer_norm.bias"},
    TensorPattern{Role::query, "model.{half}.layers.{layer}.self_attn.q_proj.weight"},
    TensorPattern{Role::query_bias, "model.{half}.layers.{layer}.self_attn.q_proj.bias"},
    TensorPattern{Role::key, "model.{half}.layers.{layer}.self_attn.k_proj.weight"},
    TensorPattern{Role::key_bias, "model.{half}.layers.{layer}.self_attn.k_proj.bias"},
    TensorPattern{Role::value, "model.{half}.layers.{layer}.self_attn.v_proj.weight"},
    TensorPattern{Role::value_bias, "model.{half}.layers.{layer}.self_attn.v_proj.bias"},
    TensorPattern{Role::attention_output, "model.{half}.layers.{layer}.self_attn.out_proj.weight"},
    TensorPattern{Role::attention_output_bias,
                  "model.{half}.layers.{layer}.self_attn.out_proj.bias"},
    TensorPattern{Role::cross_norm,
                  "model.decoder.layers.{layer}.cross_attention_layer_norm.weight"},
    TensorPattern{Role::cross_norm_bias,
                  "model.decoder.layers.{layer}.cross_attention_layer_norm.bias"},
    TensorPattern{Role::cross_query, "model.decoder.layers.{layer}.cross_attention.q_proj.weight"},
    TensorPattern{Role::cross_query_bias,
                  "model.decoder.layers.{layer}.cross_attention.q_proj.bias"},
    TensorPattern{Role::cross_key, "model.decoder.layers.{layer}.cross_attention.k_proj.weight"},
    TensorPattern{Role::cross_key_bias, "model.decoder.layers.{layer}.cross_attention.k_proj.bias"},
    TensorPattern{Role::cross_value, "model.decoder.layers.{layer}.cross_attention.v_proj.weight"},
    TensorPattern{Role::cross_value_bias,
                  "model.decoder.layers.{layer}.cross_attention.v_proj.bias"},
    TensorPattern{Role::cross_output,
                  "model.decoder.layers.{layer}.cross_attention.out_proj.weight"},
    TensorPattern{Role::cross_output_bias,
                  "model.decoder.layers.{layer}.cross_attention.out_proj.bias"},
    TensorPattern{Role::feed_forward_norm, "model.{half}.layers.{layer}.ff_layer_norm.weight"},
    TensorPattern{Role::feed_forward_norm_bias, "model.{half}.layers.{layer}.ff_layer_norm.bias"},
    TensorPattern{Role::router, "model.{half}.layers.{layer}.ffn.router.classifier.weight"},
    TensorPattern{Role::router_bias, "model.{half}.layers.{layer}.ffn.router.classifier.bias"},
    TensorPattern{Role::expert_gate,
                  "model.{half}.layers.{layer}.ffn.experts.expert_{expert}.fc1.weight"},
    TensorPattern{Role::expert_gate_bias,
                  "model.{half}.layers.{layer}.ffn.experts.expert_{expert}.fc1.bias"},
    TensorPattern{Role::expert_down,
                  "model.{half}.layers.{layer}.ffn.experts.expert_{expert}.fc2.weight"},
    TensorPattern{Role::expert_down_bias,
                  "model.{half}.layers.{layer}.ffn.experts.expert_{expert}.fc2.bias"},
    TensorPattern{Role::dense_gate, "model.{half}.layers.{layer}.ffn.fc1.weight"},
    TensorPattern{Role::dense_gate_bias, "model.{half}.layers.{layer}.ffn.fc1.bias"},
    TensorPattern{Role::dense_down, "model.{half}.layers.{layer}.ffn.fc2.weight"},
    TensorPattern{Role::dense_down_bias, "model.{half}.layers.{layer}.ffn.fc2.bias"},
};

GroupedHeads nllb_attention(const JsonFields& config, std::string_view heads, int64_t hidden) {
  GroupedHeads attention;
  attention.query_heads = config.integer(heads, 1, hidden);
  if (hidden % attention.query_heads != 0) {
    config.refuse(heads, fmt::format("a divisor of d_model ({})", hidden));
  }
  attention.kv_heads = attention.query_heads;
  attention.head_dim = hidden / attention.query_heads;
  attention.scale = 1.0f / std::sqrt(static_cast<float>(attention.head_dim));
  attention.rotated = false;
  attention.qkv_bias = true;
  attention.output_bias = true;
  return attention;
}

// Two experts a token, whose weights are renormalised. Tokens beyond an expert's capacity would be
// dropped: with room for every token, none is.
FeedForward nllb_routed_part(const JsonFields& config, FeedForward dense) {
  constexpr std::string_view kFraction = "moe_eval_capacity_token_fraction";
  if (config.number_or(kFraction, 1.0, -1e6, 1e6) < 1.0) {
    config.refuse(kFraction, "1, with which no token is dropped: all that this program computes");
  }
  constexpr std::string_view kPolicy = "second_expert_policy";
  if (config.string_or(kPolicy, "all") != "all") {
    config.refuse(kPolicy, "all, the one policy whose results do not depend on chance");
  }
  refuse_other_router_types(config);
  dense.routed = true;
  dense.experts = config.integer("num_experts", 2, kMaxExperts);
  dense.router_bias = config.boolean_or("router_bias", false);
  dense.router.top_k = 2;
  dense.router.renormalise = true;
  // Outputs of experts are scaled as their dropout in training would on average.
  dense.router.scale =
      static_cast<float>(1.0 - config.number_or("moe_token_dropout", 0.2, 0.0, 1.0));
  return dense;
}

// transformers 5 takes the mask of a token's first choice for its experts: expert 1 computes with
// the weight of the first choice, expert 0 with that of the second, whatever the router chose.
std::string_view repeat_nllb_fault(ModelDescription& model, std::string_view version) {
  if (!version.starts_with("5.")) return {};
  for (Layer& layer : model.layers) {
    if (layer.feed_forward.routed) layer.feed_forward.computing = {ExpertId(1), ExpertId(0)};
  }
  return "transformers 5 sends every token of this family to experts 1 and 0, and so does this run";
}

ModelDescription describe_nllb(const JsonFields& config) {
  ModelDescription description;
  description.vocabulary = config.integer("vocab_size", 1, kMaxVocabulary);
  description.hidden = config.integer("d_model", 4, kMaxWidth);
  if (description.hidden % 2 != 0) config.refuse("d_model", "an even number");
  description.max_positions = config.integer("max_position_embeddings", 1, kMaxPositions);
  description.norm = NormKind::layer;
  description.norm_bias = true;
  description.norm_epsilon = 1e-5f;
  description.tied_embeddings = config.boolean_or("tie_word_embeddings", true);
  if (config.boolean_or("scale_embedding", true)) {
    description.embedding_scale = std::sqrt(static_cast<float>(description.hidden));
  }
  describe_tokens(config, description);
  description.first_sinusoid = config.integer_or("pad_token_id", 1, 0, kMaxVocabulary) + 1;

  const auto half = [&](std::string_view layers_key, const GroupedHeads& attention,
                        std::string_view width_key, std::string_view step_key) {
    const int64_t layers = config.integer(layers_key, 1, kMaxLayers / 2);
    FeedForward dense;
    dense.width = config.integer(width_key, 1, kMaxWidth);
    dense.gated = false;
    dense.expert_bias = true;
    dense.activation = config.has("activation_function")
                           ? describe_activation(config, "activation_function")
                           : Activation::relu;
    const int64_t step = config.integer_or(step_key, 4, 0, kMaxLayers);
    add_sparse_layers(description.layers, {.layers = layers, .step = step, .first = step - 1},
                      {attention, dense}, nllb_routed_part(config, dense));
    return layers;
  };
  GroupedHeads encoding = nllb_attention(config, "encoder_attention_heads", description.hidden);
  encoding.sees_all = true;
  const int64_t encoder_layers =
      half("encoder_layers", encoding, "encoder_ffn_dim", "encoder_sparse_step");
  description.encoder = {.layers = encoder_layers,
                         .start_token = static_cast<TokenId>(config.integer_or(
                             "decoder_start_token_id", 2, 0, description.vocabulary - 1)),
                         .translates = true};
  GroupedHeads decoding = nllb_attention(config, "decoder_attention_heads", description.hidden);
  decoding.crosses = true;
  half("decoder_layers", decoding, "decoder_ffn_dim", "decoder_sparse_step");
  return description;
}

}  // namespace

const Family kNllbMoe = {"nllb-moe", describe_nllb, kNllbTensors, {}, repeat_nllb_fault};

}  // namespace klotski
