// OLMoE: many small experts, queries and keys normalised over their whole width, optional clamp.

#include <array>

#include "model/families/common.h"
#include "model/families/families.h"

namespace klotski {

namespace {

constexpr std::array kTensorNames = {
    TensorPattern{Role::embedding, "model.embed_tokens.weight"},
    TensorPattern{Role::final_norm, "model.norm.weight"},
    TensorPattern{Role::output, "lm_head.weight"},
    TensorPattern{Role::attention_norm, "model.layers.{layer}.input_layernorm.weight"},
    TensorPattern{Role::query, "model.layers.{layer}.self_attn.q_proj.weight"},
    TensorPattern{Role::query_bias, "model.layers.{layer}.self_attn.q_proj.bias"},
    TensorPattern{Role::key, "model.layers.{layer}.self_attn.k_proj.weight"},
    TensorPattern{Role::key_bias, "model.layers.{layer}.self_attn.k_proj.bias"},
    TensorPattern{Role::value, "model.layers.{layer}.self_attn.v_proj.weight"},
    TensorPattern{Role::value_bias, "model.layers.{layer}.self_attn.v_proj.bias"},
    TensorPattern{Role::query_norm, "model.layers.{layer}.self_attn.q_norm.weight"},
    TensorPattern{Role::key_norm, "model.layers.{layer}.self_attn.k_norm.weight"},
    TensorPattern{Role::attention_output, "model.layers.{layer}.self_attn.o_proj.weight"},
    TensorPattern{Role::attention_output_bias, "model.layers.{layer}.self_attn.o_proj.bias"},
    TensorPattern{Role::feed_forward_norm, "model.layers.{layer}.post_attention_layernorm.weight"},
    TensorPattern{Role::router, "model.layers.{layer}.mlp.gate.weight"},
    TensorPattern{Role::expert_gate, "model.layers.{layer}.mlp.experts.{expert}.gate_proj.weight"},
    TensorPattern{Role::expert_up, "model.layers.{layer}.mlp.experts.{expert}.up_proj.weight"},
    TensorPattern{Role::expert_down, "model.layers.{layer}.mlp.experts.{expert}.down_proj.weight"},
};

ModelDescription describe(const JsonFields& config) {
  ModelDescription description = describe_common(config, 1e4);
  Layer layer;
  layer.attention = describe_attention(config);
  layer.attention.norm = HeadNorm::whole;
  layer.attention.clip = static_cast<float>(config.number_or("clip_qkv", 0.0, 1e-6, 1e6));
  layer.attention.qkv_bias = layer.attention.output_bias =
      config.boolean_or("attention_bias", false);
  layer.feed_forward.routed = true;
  layer.feed_forward.experts = expert_count(config);
  layer.feed_forward.width = config.integer("intermediate_size", 1, kMaxWidth);
  layer.feed_forward.activation = describe_activation(config);
  layer.feed_forward.router = describe_softmax_router(config, layer.feed_forward.experts);
  layer.feed_forward.router.renormalise = config.boolean_or("norm_topk_prob", false);
  description.layers = repeat_layer(config, layer);
  return description;
}

}  // namespace

const Family kOlmoe = {"olmoe", describe, kTensorNames};

}  // namespace klotski
