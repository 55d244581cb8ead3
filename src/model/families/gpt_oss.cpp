// gpt-oss: attention with sinks, in a window in every second layer; biases everywhere; experts with
// a clamped activation, fused in one tensor a layer.

#include <array>
#include <cmath>

#include "model/families/common.h"
#include "model/families/families.h"

namespace klotski {

namespace {

constexpr std::array kTensors = {
    TensorPattern{Role::router, "model.layers.{layer}.mlp.router.weight"},
    TensorPattern{Role::router_bias, "model.layers.{layer}.mlp.router.bias"},
    TensorPattern{Role::expert_gate, "model.layers.{layer}.mlp.experts.gate_up_proj", true, true},
    TensorPattern{Role::expert_up, "model.layers.{layer}.mlp.experts.gate_up_proj", true, true},
    TensorPattern{Role::expert_down, "model.layers.{layer}.mlp.experts.down_proj", false, true},
    TensorPattern{Role::expert_gate_bias, "model.layers.{layer}.mlp.experts.gate_up_proj_bias",
                  true},
    TensorPattern{Role::expert_up_bias, "model.layers.{layer}.mlp.experts.gate_up_proj_bias", true},
    TensorPattern{Role::expert_down_bias, "model.layers.{layer}.mlp.experts.down_proj_bias"},
};

constexpr double kRopeBase = 150000.0;

// The rope of a config.json that says nothing about it.
void set_default_rope(ModelDescription& description) {
  Rope& rope = description.rope;
  rope.kind = RopeKind::yarn;
  rope.factor = 32.0;
  rope.original_positions = 4096;
  rope.attention_factor = 0.1 * std::log(rope.factor) + 1.0;
  rope.truncate = false;
  description.max_positions = std::max<int64_t>(description.max_positions, 32 * 4096);
}

// Layers that see only a window: named one by one in `layer_types`, else every second one.
void set_windows(const JsonFields& config, std::vector<Layer>& layers) {
  const std::vector<std::string> types =
      layer_types(config, {"sliding_attention", "full_attention"});
  for (size_t i = 0; i < layers.size(); ++i) {
    if (types.empty() ? i % 2 != 0 : types[i] == "full_attention") continue;
    layers[i].attention.grouped_heads().window = config.integer("sliding_window", 1, kMaxPositions);
  }
}

ModelDescription describe_gpt_oss(const JsonFields& config) {
  require_present(config, {"head_dim", "num_key_value_heads"});
  refuse_partial_rotation(config);
  ModelDescription description = describe_common(config, kRopeBase);
  if (!config.has("rope_parameters") && !config.has("rope_scaling")) set_default_rope(description);
  Layer layer;
  GroupedHeads attention = describe_attention(config);
  attention.qkv_bias = attention.output_bias = config.boolean_or("attention_bias", true);
  attention.sinks = true;
  layer.attention = attention;
  FeedForward& part = layer.feed_forward;
  part.routed = true;
  part.experts = expert_count(config);
  part.width = config.integer("intermediate_size", 1, kMaxWidth);
  part.activation = Activation::clamped_swiglu;
  part.swiglu = {static_cast<float>(config.number_or("swiglu_alpha", 1.702, -1e6, 1e6)),
                 static_cast<float>(config.number_or("swiglu_limit", 7.0, 1e-6, 1e6))};
  part.router = describe_softmax_router(config, part.experts);
  part.router.renormalise = true;  // a softmax of the chosen logits
  part.router_bias = true;
  part.expert_bias = true;
  description.layers = repeat_layer(config, layer);
  set_windows(config, description.layers);
  return description;
}

}  // namespace

const Family kGptOss = {"gpt_oss",
                        describe_gpt_oss,
                        kTensors,
                        {.architecture = "gpt-oss",
                         .renormalises = true,
                         .truncates_yarn = false,
                         .tensor_names = kGgufPostAttentionNorm}};

}  // namespace klotski
