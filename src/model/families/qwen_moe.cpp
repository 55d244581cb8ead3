// Qwen2-MoE (routed experts and a gated shared expert, biases on queries, keys and values) and
// Qwen3-MoE (no shared expert, queries and keys normalised head by head). In both, some layers may
// be dense: layers listed in `mlp_only_layers` and layers that `decoder_sparse_step` passes over.

#include <array>

#include "model/families/common.h"
#include "model/families/families.h"

namespace klotski {

namespace {

constexpr std::array kQwen2Tensors = {
    TensorPattern{Role::shared_gate, "model.layers.{layer}.mlp.shared_expert.gate_proj.weight"},
    TensorPattern{Role::shared_up, "model.layers.{layer}.mlp.shared_expert.up_proj.weight"},
    TensorPattern{Role::shared_down, "model.layers.{layer}.mlp.shared_expert.down_proj.weight"},
    TensorPattern{Role::shared_scale, "model.layers.{layer}.mlp.shared_expert_gate.weight"},
};

FeedForward routed_part(const JsonFields& config) {
  FeedForward part;
  part.routed = true;
  part.experts = expert_count(config);
  part.width = config.integer("moe_intermediate_size", 1, kMaxWidth);
  part.activation = describe_activation(config);
  part.router = describe_softmax_router(config, part.experts);
  part.router.renormalise = config.boolean_or("norm_topk_prob", false);
  return part;
}

FeedForward qwen_dense_part(const JsonFields& config) {
  return dense_part(config, config.integer("intermediate_size", 1, kMaxWidth));
}

std::vector<Layer> describe_layers(const JsonFields& config, const GroupedHeads& attention,
                                   const FeedForward& routed) {
  const int64_t count = layer_count(config);
  const int64_t step = config.integer_or("decoder_sparse_step", 1, 1, kMaxLayers);
  std::vector<Layer> layers;
  for (int64_t i = 0; i < count; ++i) {
    layers.push_back({attention, (i + 1) % step != 0 ? qwen_dense_part(config) : routed});
  }
  const auto listed = config.integers("mlp_only_layers", 0, count - 1);
  if (!listed) return layers;
  for (const int64_t i : *listed)
    layers[static_cast<size_t>(i)].feed_forward = qwen_dense_part(config);
  return layers;
}

// Sets the layers that see only a window: named one by one in `layer_types`, else every second one
// of the first `max_window_layers`.
void set_windows_by_layer(const JsonFields& config, std::vector<Layer>& layers) {
  if (!config.boolean_or("use_sliding_window", false)) return;
  const int64_t window = config.integer("sliding_window", 1, kMaxPositions);
  const auto types = config.strings("layer_types");
  if (types && types->size() != layers.size()) {
    config.refuse("layer_types", fmt::format("an array of {} strings", layers.size()));
  }
  const int64_t windowed = config.integer_or("max_window_layers", 28, 0, kMaxLayers);
  for (size_t i = 0; i < layers.size(); ++i) {
    if (types && (*types)[i] != "sliding_attention" && (*types)[i] != "full_attention") {
      config.refuse("layer_types", "sliding_attention or full_attention for every layer");
    }
    const bool slides = types ? (*types)[i] == "sliding_attention"
                              : i % 2 == 0 && static_cast<int64_t>(i) < windowed;
    if (slides) layers[i].attention.grouped_heads().window = window;
  }
}

ModelDescription describe_qwen2(const JsonFields& config) {
  ModelDescription description = describe_common(config, 1e4);
  GroupedHeads attention = describe_attention(config);
  attention.qkv_bias = config.boolean_or("qkv_bias", true);
  FeedForward routed = routed_part(config);
  routed.shared = SharedExpert{
      .width = config.integer("shared_expert_intermediate_size", 1, kMaxWidth), .gated = true};
  description.layers = describe_layers(config, attention, routed);
  set_windows_by_layer(config, description.layers);
  return description;
}

ModelDescription describe_qwen3(const JsonFields& config) {
  ModelDescription description = describe_common(config, 1e4);
  GroupedHeads attention = describe_attention(config);
  attention.norm = HeadNorm::per_head;
  attention.qkv_bias = attention.output_bias = config.boolean_or("attention_bias", false);
  if (config.boolean_or("use_sliding_window", false)) {
    attention.window = config.integer_or("sliding_window", 0, 1, kMaxPositions);
  }
  description.layers = describe_layers(config, attention, routed_part(config));
  return description;
}

}  // namespace

const Family kQwen2Moe = {"qwen2_moe", describe_qwen2, kQwen2Tensors, {.architecture = "qwen2moe"}};
const Family kQwen3Moe = {
    "qwen3_moe", describe_qwen3, {}, {.architecture = "qwen3moe", .renormalises = true}};

}  // namespace klotski
