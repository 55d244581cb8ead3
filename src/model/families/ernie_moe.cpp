// ERNIE 4.5: dense layers before the routed ones, a bias on the softmax that decides the choice,
// shared experts, rope that turns neighbouring numbers of a head.

#include <array>

#include "model/families/common.h"
#include "model/families/families.h"

namespace klotski {

namespace {

constexpr std::array kErnieTensors = {
    TensorPattern{Role::selection_bias,
                  "model.layers.{layer}.mlp.moe_statics.e_score_correction_bias"},
    TensorPattern{Role::shared_gate, "model.layers.{layer}.mlp.shared_experts.gate_proj.weight"},
    TensorPattern{Role::shared_up, "model.layers.{layer}.mlp.shared_experts.up_proj.weight"},
    TensorPattern{Role::shared_down, "model.layers.{layer}.mlp.shared_experts.down_proj.weight"},
};

FeedForward ernie_routed_part(const JsonFields& config) {
  FeedForward part;
  part.routed = true;
  part.experts = config.integer("moe_num_experts", 1, kMaxExperts);
  part.width = config.integer("moe_intermediate_size", 1, kMaxWidth);
  part.activation = describe_activation(config);
  part.router.top_k = static_cast<int>(config.integer("moe_k", 1, part.experts));
  part.router.renormalise = true;
  part.router.least_sum = static_cast<float>(config.number_or("moe_norm_min", 1e-12, 0.0, 1e6));
  part.selection_bias = true;
  const int64_t shared = config.integer_or("moe_num_shared_experts", 2, 0, kMaxWidth / part.width);
  if (shared > 0) part.shared = SharedExpert{.width = shared * part.width};
  return part;
}

// Layers from `moe_layer_start_index` to `moe_layer_end_index` whose number, counted from one, is a
// multiple of `moe_layer_interval` are routed.
void set_dense_layers(const JsonFields& config, std::vector<Layer>& layers) {
  const int64_t count = std::ssize(layers);
  const int64_t first = config.integer_or("moe_layer_start_index", 1, 0, kMaxLayers);
  const int64_t stated = config.integer_or("moe_layer_end_index", -1, -1, kMaxLayers);
  const int64_t last = stated == -1 ? count - 1 : stated;
  const int64_t interval = config.integer_or("moe_layer_interval", 1, 1, kMaxLayers);
  for (int64_t i = 0; i < count; ++i) {
    if (i >= first && i <= last && (i + 1) % interval == 0) continue;
    layers[static_cast<size_t>(i)].feed_forward =
        dense_part(config, config.integer("intermediate_size", 1, kMaxWidth));
  }
}

ModelDescription describe_ernie(const JsonFields& config) {
  ModelDescription description = describe_common(config, 5e5);
  description.tied_embeddings = config.boolean_or("tie_word_embeddings", true);
  description.rope.interleaved = true;
  refuse_switch(config, "use_bias");
  description.layers =
      repeat_layer(config, {describe_attention(config), ernie_routed_part(config)});
  set_dense_layers(config, description.layers);
  return description;
}

constexpr std::array kErnieGgufFields = {
    GgufField{"expert_count", "moe_num_experts"},
    GgufField{"expert_used_count", "moe_k"},
    GgufField{"interleave_moe_layer_step", "moe_layer_interval"},
    GgufField{"leading_dense_block_count", "moe_layer_start_index"},
    GgufField{"expert_shared_count", "moe_num_shared_experts"},
};

void set_ernie_gguf_fields(const GgufModel& model, Json& config) {
  model.copy(kErnieGgufFields, config);
  config.emplace("moe_layer_start_index", 0);
  config.emplace("moe_num_shared_experts", 0);
}

}  // namespace

const Family kErnieMoe = {"ernie4_5_moe",
                          describe_ernie,
                          kErnieTensors,
                          {.architecture = "ernie4_5-moe",
                           .neighbours_rotate = true,
                           .set_fields = set_ernie_gguf_fields}};

}  // namespace klotski
