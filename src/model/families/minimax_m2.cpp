// MiniMax-M2: sigmoid scores with a bias that decides the choice, queries and keys normalised over
// their whole width, part of each head rotated.

#include "model/families/common.h"
#include "model/families/families.h"

namespace klotski {

namespace {

// Published configs name the rotated numbers of a head (`rotary_dim`) instead of a share of it.
int64_t minimax_rotated_dims(const JsonFields& config, int64_t head_dim) {
  const int64_t rotated = config.integer_or("rotary_dim", head_dim, 2, head_dim);
  const auto share = static_cast<double>(rotated) / static_cast<double>(head_dim);
  return rotated_dims(config, head_dim, share);
}

// Switches of published configs whose other values no released model has.
void refuse_other_minimax(const JsonFields& config) {
  if (config.string_or("scoring_func", "sigmoid") != "sigmoid") {
    config.refuse("scoring_func", "sigmoid");
  }
  if (config.string_or("qk_norm_type", "per_layer") != "per_layer") {
    config.refuse("qk_norm_type", "per_layer");
  }
  if (config.integer_or("shared_intermediate_size", 0, 0, kMaxWidth) != 0) {
    config.refuse("shared_intermediate_size", "0, no shared expert");
  }
}

ModelDescription describe_minimax(const JsonFields& config) {
  GroupedHeads attention = describe_attention(config);
  attention.norm = config.boolean_or("use_qk_norm", true) ? HeadNorm::whole : HeadNorm::none;
  ModelDescription description =
      describe_common(config, 5e6, minimax_rotated_dims(config, attention.head_dim));
  refuse_other_minimax(config);
  FeedForward part;
  part.routed = true;
  part.experts = expert_count(config);
  part.width = config.integer("intermediate_size", 1, kMaxWidth);
  part.activation = describe_activation(config);
  part.router.score = ScoreFunction::sigmoid;
  part.router.top_k = static_cast<int>(config.integer("num_experts_per_tok", 1, part.experts));
  part.router.renormalise = true;
  part.selection_bias = config.boolean_or("use_routing_bias", true);
  description.layers = repeat_layer(config, {attention, part});
  return description;
}

void set_minimax_gguf_fields(const GgufModel& model, Json& config) {
  config["use_qk_norm"] = model.has_tensor("blk.0.attn_q_norm.weight");
  config["use_routing_bias"] = model.has_tensor("blk.0.exp_probs_b.bias");
  if (config.contains("moe_intermediate_size")) {
    config["intermediate_size"] = config["moe_intermediate_size"];
  }
  set_gguf_rotation(model, config);
}

}  // namespace

const Family kMinimaxM2 = {"minimax_m2",
                           describe_minimax,
                           kSparseBlockTensors,
                           {.architecture = "minimax-m2",
                            .score = ScoreFunction::sigmoid,
                            .set_fields = set_minimax_gguf_fields}};

}  // namespace klotski
