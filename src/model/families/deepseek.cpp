// DeepSeek-V2 (softmax router, groups of experts by their best one) and DeepSeek-V3 with Kimi-K2
// (sigmoid router with a bias for the choice, groups by their best two): latent attention, shared
// experts, dense first layers.

#include <array>
#include <cmath>

#include "model/families/common.h"
#include "model/families/families.h"

namespace klotski {

namespace {

constexpr std::array kDeepseekTensors = {
    TensorPattern{Role::query_down, "model.layers.{layer}.self_attn.q_a_proj.weight"},
    TensorPattern{Role::query_down_bias, "model.layers.{layer}.self_attn.q_a_proj.bias"},
    TensorPattern{Role::query_down_norm, "model.layers.{layer}.self_attn.q_a_layernorm.weight"},
    TensorPattern{Role::query_up, "model.layers.{layer}.self_attn.q_b_proj.weight"},
    TensorPattern{Role::latent_down, "model.layers.{layer}.self_attn.kv_a_proj_with_mqa.weight"},
    TensorPattern{Role::latent_down_bias, "model.layers.{layer}.self_attn.kv_a_proj_with_mqa.bias"},
    TensorPattern{Role::latent_norm, "model.layers.{layer}.self_attn.kv_a_layernorm.weight"},
    TensorPattern{Role::latent_up, "model.layers.{layer}.self_attn.kv_b_proj.weight"},
    TensorPattern{Role::selection_bias, "model.layers.{layer}.mlp.gate.e_score_correction_bias"},
    TensorPattern{Role::shared_gate, "model.layers.{layer}.mlp.shared_experts.gate_proj.weight"},
    TensorPattern{Role::shared_up, "model.layers.{layer}.mlp.shared_experts.up_proj.weight"},
    TensorPattern{Role::shared_down, "model.layers.{layer}.mlp.shared_experts.down_proj.weight"},
};

// Refuses a field whose value, where it is stated, is not the only one that a family computes.
void require_string(const JsonFields& config, std::string_view key, std::string_view only) {
  if (config.string_or(key, only) != only) config.refuse(key, fmt::format("\"{}\"", only));
}

void refuse_uncomputed(const JsonFields& config) {
  if (config.boolean_or("mlp_bias", false)) config.refuse("mlp_bias", "false");
  if (config.integer_or("moe_layer_freq", 1, 1, kMaxLayers) != 1) {
    config.refuse("moe_layer_freq", "1");
  }
  refuse_partial_rotation(config);
}

// The factor of the scores. A stretched rope whose `mscale_all_dim` is stated sharpens them.
float score_scale(const JsonFields& config, const Rope& rope, int64_t query_dim) {
  const double plain = 1.0 / std::sqrt(static_cast<double>(query_dim));
  const auto today = config.object("rope_parameters");
  const auto before = config.object("rope_scaling");
  if (rope.kind == RopeKind::plain) return static_cast<float>(plain);
  const double mscale = (today ? *today : *before).number_or("mscale_all_dim", 0.0, 0.0, 1e6);
  const double sharper = yarn_magnitude(rope.factor, mscale);
  return static_cast<float>(plain * sharper * sharper);
}

LatentAttention describe_latent(const JsonFields& config) {
  LatentAttention attention;
  attention.query_heads = config.integer("num_attention_heads", 1, kMaxWidth);
  const int64_t heads = attention.query_heads;
  if (config.integer_or("num_key_value_heads", heads, 1, kMaxWidth) != heads) {
    config.refuse("num_key_value_heads", fmt::format("num_attention_heads ({})", heads));
  }
  attention.query_rank = config.integer_or("q_lora_rank", 0, 1, kMaxWidth);
  attention.latent_rank = config.integer("kv_lora_rank", 1, kMaxWidth);
  attention.plain_dims = config.integer("qk_nope_head_dim", 1, kMaxWidth);
  attention.rotated_dims = config.integer("qk_rope_head_dim", 2, kMaxWidth);
  attention.value_dim = config.integer("v_head_dim", 1, kMaxWidth);
  if (attention.rotated_dims % 2 != 0) config.refuse("qk_rope_head_dim", "an even number");
  for (const int64_t width :
       {attention.query_dim(), attention.key_width(), attention.head_rows()}) {
    if (heads * width > kMaxWidth) {
      config.refuse("num_attention_heads",
                    fmt::format("heads of {} numbers, at most {} together", width, kMaxWidth));
    }
  }
  // Devices expand the weights of a head at a time.
  constexpr int64_t kMostHeadNumbers = int64_t{1} << 23;
  if (attention.head_rows() * attention.latent_rank > kMostHeadNumbers) {
    config.refuse("kv_lora_rank",
                  fmt::format("at most {} numbers of a head's keys and values", kMostHeadNumbers));
  }
  attention.input_bias = attention.output_bias = config.boolean_or("attention_bias", false);
  return attention;
}

// Reads the groups of experts, of which only some can be chosen.
void describe_groups(const JsonFields& config, int64_t experts, RouterRule& rule) {
  rule.groups = static_cast<int>(config.integer("n_group", 1, experts));
  rule.groups_kept = static_cast<int>(config.integer("topk_group", 1, rule.groups));
  if (experts % rule.groups != 0) {
    config.refuse("n_group", fmt::format("a divisor of n_routed_experts ({})", experts));
  }
  const int64_t members = experts / rule.groups;
  if (rule.groups > 1 && rule.group_score == GroupScore::best_two && members < 2) {
    config.refuse("n_group", "groups of at least two experts");
  }
  if (rule.top_k > rule.groups_kept * members) {
    config.refuse("num_experts_per_tok", fmt::format("at most {}, the experts of topk_group groups",
                                                     rule.groups_kept * members));
  }
}

// A routed part without its router's rule, but for the number of choices.
FeedForward describe_routed(const JsonFields& config) {
  FeedForward part;
  part.routed = true;
  part.experts = config.integer("n_routed_experts", 1, kMaxExperts);
  part.width = config.integer("moe_intermediate_size", 1, kMaxWidth);
  part.activation = describe_activation(config);
  part.router.top_k = static_cast<int>(config.integer("num_experts_per_tok", 1, part.experts));
  const int64_t shared = config.integer_or("n_shared_experts", 0, 0, kMaxExperts);
  if (shared * part.width > kMaxWidth) {
    config.refuse("n_shared_experts",
                  fmt::format("experts of at most {} numbers together", kMaxWidth));
  }
  if (shared > 0) part.shared = SharedExpert{.width = shared * part.width};
  return part;
}

std::vector<Layer> describe_deepseek_layers(const JsonFields& config,
                                            const LatentAttention& attention,
                                            const FeedForward& routed, int64_t default_dense) {
  FeedForward dense;
  dense.width = config.integer("intermediate_size", 1, kMaxWidth);
  dense.activation = describe_activation(config);
  const int64_t first_routed =
      config.integer_or("first_k_dense_replace", default_dense, 0, kMaxLayers);
  std::vector<Layer> layers;
  for (int64_t i = 0; i < layer_count(config); ++i) {
    layers.push_back({attention, i < first_routed ? dense : routed});
  }
  return layers;
}

// `norm_topk_prob` does not count: the reference implementation of the family never normalises.
ModelDescription describe_v2(const JsonFields& config) {
  refuse_uncomputed(config);
  LatentAttention attention = describe_latent(config);
  ModelDescription description = describe_common(config, 1e4, attention.rotated_dims);
  description.rope.interleaved = true;
  attention.scale = score_scale(config, description.rope, attention.query_dim());
  require_string(config, "scoring_func", "softmax");
  FeedForward routed = describe_routed(config);
  const std::string method = config.string_or("topk_method", "greedy");
  if (method == "group_limited_greedy") {
    describe_groups(config, routed.experts, routed.router);
  } else if (method != "greedy") {
    config.refuse("topk_method", "one of greedy, group_limited_greedy");
  }
  routed.router.scale =
      static_cast<float>(config.number_or("routed_scaling_factor", 1.0, 0.0, 1e6));
  description.layers = describe_deepseek_layers(config, attention, routed, 0);
  return description;
}

ModelDescription describe_v3(const JsonFields& config) {
  refuse_uncomputed(config);
  LatentAttention attention = describe_latent(config);
  ModelDescription description = describe_common(config, 1e4, attention.rotated_dims);
  description.rope.interleaved = config.boolean_or("rope_interleave", true);
  attention.scale = score_scale(config, description.rope, attention.query_dim());
  require_string(config, "scoring_func", "sigmoid");
  require_string(config, "topk_method", "noaux_tc");
  FeedForward routed = describe_routed(config);
  routed.selection_bias = true;
  routed.router.score = ScoreFunction::sigmoid;
  routed.router.group_score = GroupScore::best_two;
  describe_groups(config, routed.experts, routed.router);
  routed.router.renormalise = config.boolean_or("norm_topk_prob", true);
  routed.router.least_sum = 1e-20f;
  routed.router.scale =
      static_cast<float>(config.number_or("routed_scaling_factor", 2.5, 0.0, 1e6));
  description.layers = describe_deepseek_layers(config, attention, routed, 3);
  return description;
}

constexpr std::array kLatentGgufFields = {
    GgufField{"attention.q_lora_rank", "q_lora_rank"},
    GgufField{"attention.kv_lora_rank", "kv_lora_rank"},
    GgufField{"rope.dimension_count", "qk_rope_head_dim"},
};

void set_deepseek_gguf_fields(const GgufModel& model, Json& config) {
  model.copy(kLatentGgufFields, config);
  set_gguf_routing(model, config);
  // Files with W_uk and W_uv apart state the widths of absorbed heads as well, and one head of
  // keys.
  const JsonFields& metadata = model.metadata;
  const bool absorbed = metadata.has(model.key("attention.key_length_mla"));
  const std::string key_length =
      model.key(absorbed ? "attention.key_length_mla" : "attention.key_length");
  const std::string value_length =
      model.key(absorbed ? "attention.value_length_mla" : "attention.value_length");
  constexpr int64_t kMost = int64_t{1} << 40;
  const int64_t rotated = metadata.integer(model.key("rope.dimension_count"), 1, kMost);
  config["qk_nope_head_dim"] = metadata.integer(key_length, rotated + 1, kMost) - rotated;
  config["v_head_dim"] = metadata.integer(value_length, 1, kMost);
  config.erase("num_key_value_heads");
  if (metadata.integer_or(model.key("expert_group_count"), 1, 1, kMost) > 1 &&
      metadata.integer_or(model.key("expert_gating_func"), 1, 0, 1000) <= 1) {
    config["topk_method"] = "group_limited_greedy";
  }
}

}  // namespace

constexpr std::string_view kGgufName = "deepseek2";

const Family kDeepseekV2 = {
    "deepseek_v2",
    describe_v2,
    kDeepseekTensors,
    {.architecture = kGgufName, .neighbours_rotate = true, .set_fields = set_deepseek_gguf_fields}};
const Family kDeepseekV3 = {"deepseek_v3",
                            describe_v3,
                            kDeepseekTensors,
                            {.architecture = kGgufName,
                             .neighbours_rotate = true,
                             .score = ScoreFunction::sigmoid,
                             .set_fields = set_deepseek_gguf_fields}};
const Family kKimiK2 = {"kimi_k2", describe_v3, kDeepseekTensors, {}};

}  // namespace klotski
