// DBRX: LayerNorm without bias, queries, keys and values in one clamped projection, the matrices of
// all experts of a layer in three tensors, of which the last has columns in place of rows.

#include <array>
#include <cmath>

#include "model/families/common.h"
#include "model/families/families.h"

namespace klotski {

namespace {

constexpr std::string_view kQueriesKeysValues =
    "transformer.blocks.{layer}.norm_attn_norm.attn.Wqkv.weight";
constexpr std::array kDbrxTensors = {
    TensorPattern{Role::embedding, "transformer.wte.weight"},
    TensorPattern{Role::final_norm, "transformer.norm_f.weight"},
    TensorPattern{Role::attention_norm, "transformer.blocks.{layer}.norm_attn_norm.norm_1.weight"},
    TensorPattern{Role::query, kQueriesKeysValues},
    TensorPattern{Role::key, kQueriesKeysValues},
    TensorPattern{Role::value, kQueriesKeysValues},
    TensorPattern{Role::attention_output,
                  "transformer.blocks.{layer}.norm_attn_norm.attn.out_proj.weight"},
    TensorPattern{Role::feed_forward_norm,
                  "transformer.blocks.{layer}.norm_attn_norm.norm_2.weight"},
    TensorPattern{Role::router, "transformer.blocks.{layer}.ffn.router.layer.weight"},
    TensorPattern{Role::expert_gate, "transformer.blocks.{layer}.ffn.experts.mlp.w1"},
    TensorPattern{Role::expert_up, "transformer.blocks.{layer}.ffn.experts.mlp.v1"},
    TensorPattern{.role = Role::expert_down,
                  .pattern = "transformer.blocks.{layer}.ffn.experts.mlp.w2",
                  .transposed = true},
};

JsonFields required_object(const JsonFields& config, std::string_view key) {
  const auto object = config.object(key);
  if (!object) config.refuse(key, "an object");
  return *object;
}

GroupedHeads dbrx_attention(const JsonFields& config, int64_t hidden) {
  const JsonFields fields = required_object(config, "attn_config");
  GroupedHeads attention;
  attention.query_heads = config.integer("n_heads", 1, hidden);
  if (hidden % (2 * attention.query_heads) != 0) {
    config.refuse("n_heads", fmt::format("heads of an even part of d_model ({})", hidden));
  }
  attention.head_dim = hidden / attention.query_heads;
  config.integer_or("head_dim", attention.head_dim, attention.head_dim, attention.head_dim);
  attention.kv_heads = fields.integer_or("kv_n_heads", 1, 1, attention.query_heads);
  if (attention.query_heads % attention.kv_heads != 0) {
    fields.refuse("kv_n_heads", fmt::format("a divisor of n_heads ({})", attention.query_heads));
  }
  attention.clip = static_cast<float>(fields.number_or("clip_qkv", 0.0, 1e-6, 1e6));
  attention.scale = 1.0f / std::sqrt(static_cast<float>(attention.head_dim));
  return attention;
}

// Published configs have the base among the fields of attention, later ones in `rope_parameters`.
Rope dbrx_rope(const JsonFields& config, int64_t head_dim) {
  const JsonFields attention = required_object(config, "attn_config");
  Rope rope =
      describe_rope(config, head_dim, attention.number_or("rope_theta", 1e4, 1.0 + 1e-6, 1e12));
  if (rope.kind != RopeKind::plain) config.refuse("rope_parameters", "rope without scaling");
  return rope;
}

FeedForward dbrx_feed_forward(const JsonFields& config) {
  const JsonFields fields = required_object(config, "ffn_config");
  FeedForward part;
  part.routed = true;
  part.experts = fields.integer("moe_num_experts", 1, kMaxExperts);
  part.width = fields.integer("ffn_hidden_size", 1, kMaxWidth);
  const auto function = fields.object("ffn_act_fn");
  if (function) part.activation = describe_activation(*function, "name");
  part.router.top_k = static_cast<int>(fields.integer("moe_top_k", 1, part.experts));
  // The power of the norm that weights are divided by; null: they are not.
  constexpr std::string_view kPower = "moe_normalize_expert_weights";
  if (fields.has(kPower) && fields.number(kPower, 0.0, 1e6) != 1.0) {
    fields.refuse(kPower, "1 or null, all that this program computes");
  }
  part.router.renormalise = fields.has(kPower);
  return part;
}

ModelDescription describe_dbrx(const JsonFields& config) {
  ModelDescription description;
  description.vocabulary = config.integer("vocab_size", 1, kMaxVocabulary);
  description.hidden = config.integer("d_model", 1, kMaxWidth);
  description.max_positions = config.integer("max_seq_len", 1, kMaxPositions);
  description.norm = NormKind::layer;
  description.norm_epsilon = 1e-5f;
  refuse_switch(config, "tie_word_embeddings");
  describe_tokens(config, description);
  const GroupedHeads attention = dbrx_attention(config, description.hidden);
  description.rope = dbrx_rope(config, attention.head_dim);
  const auto layers = static_cast<size_t>(config.integer("n_layers", 1, kMaxLayers));
  description.layers.assign(layers, {attention, dbrx_feed_forward(config)});
  return description;
}

constexpr std::string_view kGgufQueriesKeysValues = "blk.{layer}.attn_qkv.weight";
constexpr std::array kDbrxGgufNames = {
    TensorPattern{Role::query, kGgufQueriesKeysValues},
    TensorPattern{Role::key, kGgufQueriesKeysValues},
    TensorPattern{Role::value, kGgufQueriesKeysValues},
    TensorPattern{Role::feed_forward_norm, "blk.{layer}.attn_output_norm.weight"},
};

constexpr std::array kDbrxGgufFields = {
    GgufField{"embedding_length", "d_model"},
    GgufField{"context_length", "max_seq_len"},
    GgufField{"block_count", "n_layers"},
    GgufField{"attention.head_count", "n_heads"},
};
constexpr std::array kDbrxGgufAttention = {
    GgufField{"attention.head_count_kv", "kv_n_heads"},
    GgufField{"attention.clamp_kqv", "clip_qkv"},
};
constexpr std::array kDbrxGgufExperts = {
    GgufField{"expert_count", "moe_num_experts"},
    GgufField{"feed_forward_length", "ffn_hidden_size"},
    GgufField{"expert_used_count", "moe_top_k"},
};

void set_dbrx_gguf_fields(const GgufModel& model, Json& config) {
  model.copy(kDbrxGgufFields, config);
  model.copy(kDbrxGgufAttention, config["attn_config"] = Json::object());
  Json& experts = config["ffn_config"] = {{"moe_normalize_expert_weights", 1}};
  model.copy(kDbrxGgufExperts, experts);
  constexpr double kEpsilon = 1e-5;
  const std::string epsilon = model.key("attention.layer_norm_epsilon");
  const double stated = model.metadata.number_or(epsilon, kEpsilon, 0.0, 1.0);
  if (std::abs(stated - kEpsilon) > 1e-3 * kEpsilon) model.metadata.refuse(epsilon, "1e-5");
}

}  // namespace

const Family kDbrx = {
    "dbrx",
    describe_dbrx,
    kDbrxTensors,
    {.architecture = "dbrx", .tensor_names = kDbrxGgufNames, .set_fields = set_dbrx_gguf_fields}};

}  // namespace klotski
