// Snowflake Arctic: in routed layers the experts read the rows that attention reads, and a dense
// part as wide as the hidden rows reads the sum after attention.

#include <array>

#include "model/families/common.h"
#include "model/families/families.h"

namespace klotski {

namespace {

constexpr std::array kArcticTensors = {
    TensorPattern{Role::router, "model.layers.{layer}.block_sparse_moe.gate.weight"},
    TensorPattern{Role::shared_norm, "model.layers.{layer}.residual_layernorm.weight"},
    TensorPattern{Role::shared_gate, "model.layers.{layer}.residual_mlp.w1.weight"},
    TensorPattern{Role::shared_up, "model.layers.{layer}.residual_mlp.w3.weight"},
    TensorPattern{Role::shared_down, "model.layers.{layer}.residual_mlp.w2.weight"},
    TensorPattern{Role::expert_gate,
                  "model.layers.{layer}.block_sparse_moe.experts.{expert}.w1.weight"},
    TensorPattern{Role::expert_up,
                  "model.layers.{layer}.block_sparse_moe.experts.{expert}.w3.weight"},
    TensorPattern{Role::expert_down,
                  "model.layers.{layer}.block_sparse_moe.experts.{expert}.w2.weight"},
    TensorPattern{Role::dense_gate, "model.layers.{layer}.block_sparse_moe.mlp.w1.weight"},
    TensorPattern{Role::dense_up, "model.layers.{layer}.block_sparse_moe.mlp.w3.weight"},
    TensorPattern{Role::dense_down, "model.layers.{layer}.block_sparse_moe.mlp.w2.weight"},
};

FeedForward arctic_routed_part(const JsonFields& config, int64_t width) {
  FeedForward part = dense_part(config, width);
  part.routed = true;
  part.experts = config.integer("num_local_experts", 1, kMaxExperts);
  part.router = describe_softmax_router(config, part.experts);
  part.router.renormalise = part.router.top_k > 1;
  const bool beside = config.boolean_or("parallel_attn_mlp_res", false);
  if (config.boolean_or("use_residual", beside) != beside) {
    config.refuse("use_residual", fmt::format("{} as parallel_attn_mlp_res", beside));
  }
  if (beside) {
    part.beside_attention = true;
    part.shared =
        SharedExpert{.width = config.integer("hidden_size", 1, kMaxWidth), .own_norm = true};
  }
  return part;
}

ModelDescription describe_arctic(const JsonFields& config) {
  ModelDescription description = describe_common(config, 1e4);
  GroupedHeads attention = describe_attention(config);
  attention.window = config.integer_or("sliding_window", 0, 1, kMaxPositions);
  attention.qkv_bias = attention.output_bias = config.boolean_or("attention_bias", false);
  const int64_t width = config.integer("intermediate_size", 1, kMaxWidth);
  const int64_t step = config.integer_or("moe_layer_frequency", 2, 1, kMaxLayers);
  const FeedForward dense = dense_part(config, width);
  const FeedForward routed = arctic_routed_part(config, width);
  for (int64_t i = 0; i < layer_count(config); ++i) {
    description.layers.push_back({attention, (i + 1) % step == 0 ? routed : dense});
  }
  return description;
}

constexpr std::array kArcticGgufNames = {
    TensorPattern{Role::feed_forward_norm, "blk.{layer}.ffn_norm_exps.weight"},
    TensorPattern{Role::shared_norm, "blk.{layer}.ffn_norm.weight"},
    TensorPattern{Role::shared_gate, "blk.{layer}.ffn_gate.weight"},
    TensorPattern{Role::shared_up, "blk.{layer}.ffn_up.weight"},
    TensorPattern{Role::shared_down, "blk.{layer}.ffn_down.weight"},
};

// Files have only models whose every layer is routed, beside a dense part.
void set_arctic_gguf_fields(const GgufModel&, Json& config) {
  config["num_local_experts"] = config["num_experts"];
  config["moe_layer_frequency"] = 1;
  config["parallel_attn_mlp_res"] = true;
}

}  // namespace

const Family kArctic = {"arctic",
                        describe_arctic,
                        kArcticTensors,
                        {.architecture = "arctic",
                         .neighbours_rotate = true,
                         .tensor_names = kArcticGgufNames,
                         .set_fields = set_arctic_gguf_fields}};

}  // namespace klotski
