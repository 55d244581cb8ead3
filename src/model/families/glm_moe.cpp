// GLM-4.5 and GLM-4.6: dense layers first, sigmoid scores with a bias that decides the choice,
// shared experts, half of each head rotated, queries and keys normalised head by head on request.

#include <array>

#include "model/families/common.h"
#include "model/families/families.h"

namespace klotski {

namespace {

constexpr std::array kGlmTensors = {
    TensorPattern{Role::selection_bias, "model.layers.{layer}.mlp.gate.e_score_correction_bias"},
    TensorPattern{Role::shared_gate, "model.layers.{layer}.mlp.shared_experts.gate_proj.weight"},
    TensorPattern{Role::shared_up, "model.layers.{layer}.mlp.shared_experts.up_proj.weight"},
    TensorPattern{Role::shared_down, "model.layers.{layer}.mlp.shared_experts.down_proj.weight"},
};

// The best experts of the best groups; a group counts as the sum of its best two experts.
RouterRule glm_router(const JsonFields& config, int64_t experts) {
  RouterRule rule;
  rule.score = ScoreFunction::sigmoid;
  rule.group_score = GroupScore::best_two;
  rule.groups = static_cast<int>(config.integer_or("n_group", 1, 1, experts));
  if (experts % rule.groups != 0 || experts / rule.groups < 2) {
    config.refuse("n_group",
                  fmt::format("groups of equal size, of at least 2 of the {} experts", experts));
  }
  rule.groups_kept = static_cast<int>(config.integer_or("topk_group", 1, 1, rule.groups));
  rule.top_k = static_cast<int>(
      config.integer("num_experts_per_tok", 1, experts / rule.groups * rule.groups_kept));
  rule.renormalise = config.boolean_or("norm_topk_prob", true);
  rule.least_sum = 1e-20f;
  rule.scale = static_cast<float>(config.number_or("routed_scaling_factor", 1.0, 1e-6, 1e6));
  return rule;
}

FeedForward glm_routed_part(const JsonFields& config) {
  FeedForward part;
  part.routed = true;
  part.experts = config.integer("n_routed_experts", 2, kMaxExperts);
  part.width = config.integer("moe_intermediate_size", 1, kMaxWidth);
  part.activation = describe_activation(config);
  part.router = glm_router(config, part.experts);
  part.selection_bias = true;
  const int64_t shared = config.integer_or("n_shared_experts", 1, 0, kMaxWidth / part.width);
  if (shared > 0) part.shared = SharedExpert{.width = shared * part.width};
  return part;
}

ModelDescription describe_glm4(const JsonFields& config) {
  GroupedHeads attention = describe_attention(config);
  ModelDescription description =
      describe_common(config, 1e4, rotated_dims(config, attention.head_dim, 0.5));
  attention.qkv_bias = config.boolean_or("attention_bias", false);
  if (config.boolean_or("use_qk_norm", false)) attention.norm = HeadNorm::per_head;
  description.layers = repeat_layer(config, {attention, glm_routed_part(config)});
  const int64_t layers = layer_count(config);
  const int64_t dense = config.integer_or("first_k_dense_replace", 1, 0, layers);
  if (dense == 0) return description;
  const int64_t width = config.integer("intermediate_size", 1, kMaxWidth);
  for (size_t i = 0; i < static_cast<size_t>(dense); ++i) {
    description.layers[i].feed_forward = dense_part(config, width);
  }
  return description;
}

void set_glm_gguf_fields(const GgufModel& model, Json& config) {
  set_gguf_routing(model, config);
  config.emplace("first_k_dense_replace", 0);
  config.emplace("n_shared_experts", 0);
  config["attention_bias"] = model.has_tensor("blk.0.attn_q.bias");
  config["use_qk_norm"] = model.has_tensor("blk.0.attn_q_norm.weight");
  set_gguf_rotation(model, config);
}

}  // namespace

const Family kGlm4Moe = {"glm4_moe",
                         describe_glm4,
                         kGlmTensors,
                         {.architecture = "glm4moe",
                          .tensor_names = kGgufPostAttentionNorm,
                          .score = ScoreFunction::sigmoid,
                          .set_fields = set_glm_gguf_fields}};

}  // namespace klotski
