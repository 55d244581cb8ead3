// Qwen2-MoE (routed experts and a gated shared expert, biases on queries, keys and values),
// Qwen3-MoE (no shared expert, queries and keys normalised head by head) and Qwen3-Next (layers of
// a gated delta net, every fourth one of attention with gated results and partly rotated heads;
// norms with weights around zero; a gated shared expert). In all of them, some layers may be dense:
// layers listed in `mlp_only_layers` and layers that `decoder_sparse_step` passes over.

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

constexpr std::array kQwen3NextTensors = {
    TensorPattern{Role::delta_input, "model.layers.{layer}.linear_attn.in_proj_qkvz.weight"},
    TensorPattern{Role::delta_rates, "model.layers.{layer}.linear_attn.in_proj_ba.weight"},
    TensorPattern{Role::delta_convolution, "model.layers.{layer}.linear_attn.conv1d.weight"},
    TensorPattern{Role::delta_log_decay, "model.layers.{layer}.linear_attn.A_log"},
    TensorPattern{Role::delta_step_bias, "model.layers.{layer}.linear_attn.dt_bias"},
    TensorPattern{Role::delta_norm, "model.layers.{layer}.linear_attn.norm.weight"},
    TensorPattern{Role::delta_output, "model.layers.{layer}.linear_attn.out_proj.weight"},
    kQwen2Tensors[0],
    kQwen2Tensors[1],
    kQwen2Tensors[2],
    kQwen2Tensors[3],
};

FeedForward routed_part(const JsonFields& config) {
  FeedForward part = describe_softmax_experts(config, "moe_intermediate_size");
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

// Heads of a gated delta net, whose states and rows stay within the bounds of other widths.
GatedDeltaNet describe_delta_net(const JsonFields& config) {
  constexpr int64_t kMostTaps = 64;
  GatedDeltaNet net;
  net.key_heads = config.integer_or("linear_num_key_heads", 16, 1, kMaxWidth);
  net.value_heads = config.integer_or("linear_num_value_heads", 32, 1, kMaxWidth);
  if (net.value_heads % net.key_heads != 0) {
    config.refuse("linear_num_value_heads",
                  fmt::format("a multiple of linear_num_key_heads ({})", net.key_heads));
  }
  net.key_dim = config.integer_or("linear_key_head_dim", 128, 1, kMostDeltaKeys);
  net.value_dim = config.integer_or("linear_value_head_dim", 128, 1, kMaxWidth);
  const std::string fewer = fmt::format("heads of at most {} numbers together", kMaxWidth);
  if (net.key_width() > kMaxWidth) config.refuse("linear_key_head_dim", fewer);
  if (net.value_width() > kMaxWidth) config.refuse("linear_value_head_dim", fewer);
  net.taps = config.integer_or("linear_conv_kernel_dim", 4, 1, kMostTaps);
  net.activation = describe_activation(config);
  return net;
}

// Which layers have a gated delta net: named one by one in `layer_types`, else all but every
// `full_attention_interval`th one.
std::vector<bool> delta_layers(const JsonFields& config) {
  const auto types = layer_types(config, {"linear_attention", "full_attention"});
  const int64_t interval = config.integer_or("full_attention_interval", 4, 1, kMaxLayers);
  std::vector<bool> linear;
  for (int64_t i = 0; i < layer_count(config); ++i) {
    linear.push_back(types.empty() ? (i + 1) % interval != 0
                                   : types[static_cast<size_t>(i)] == "linear_attention");
  }
  return linear;
}

ModelDescription describe_qwen3_next(const JsonFields& config) {
  require_present(config, {"head_dim"});
  GroupedHeads attention = describe_attention(config);
  ModelDescription description =
      describe_common(config, 1e4, rotated_dims(config, attention.head_dim, 0.25));
  description.norm_offset = 1.0f;
  attention.norm = HeadNorm::per_head;
  attention.output_gate = true;
  attention.qkv_bias = attention.output_bias = config.boolean_or("attention_bias", false);
  FeedForward routed = routed_part(config);
  routed.router.renormalise = config.boolean_or("norm_topk_prob", true);
  routed.shared = SharedExpert{
      .width = config.integer("shared_expert_intermediate_size", 1, kMaxWidth), .gated = true};
  description.layers = describe_layers(config, attention, routed);
  const GatedDeltaNet net = describe_delta_net(config);
  const std::vector<bool> linear = delta_layers(config);
  for (size_t i = 0; i < linear.size(); ++i) {
    if (linear[i]) description.layers[i].attention = net;
  }
  return description;
}

}  // namespace

const Family kQwen2Moe = {"qwen2_moe", describe_qwen2, kQwen2Tensors, {.architecture = "qwen2moe"}};
const Family kQwen3Moe = {
    "qwen3_moe", describe_qwen3, {}, {.architecture = "qwen3moe", .renormalises = true}};
const Family kQwen3Next = {"qwen3_next", describe_qwen3_next, kQwen3NextTensors, {}};

}  // namespace klotski
