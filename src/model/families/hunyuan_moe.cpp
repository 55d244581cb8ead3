// Hunyuan-A13B: heads are normalised after rope, every layer has a shared expert beside the routed
// ones, and some numbers may differ from layer to layer.

#include <array>
#include <cmath>

#include "model/families/common.h"
#include "model/families/families.h"

namespace klotski {

namespace {

constexpr std::array kHunyuanTensors = {
    TensorPattern{Role::query_norm, "model.layers.{layer}.self_attn.query_layernorm.weight"},
    TensorPattern{Role::key_norm, "model.layers.{layer}.self_attn.key_layernorm.weight"},
    TensorPattern{Role::router, "model.layers.{layer}.mlp.gate.wg.weight"},
    TensorPattern{Role::shared_gate, "model.layers.{layer}.mlp.shared_mlp.gate_proj.weight"},
    TensorPattern{Role::shared_up, "model.layers.{layer}.mlp.shared_mlp.up_proj.weight"},
    TensorPattern{Role::shared_down, "model.layers.{layer}.mlp.shared_mlp.down_proj.weight"},
};

// A number of layer `layer`: a field is one integer for all layers, or a list with one for each.
int64_t of_layer(const JsonFields& config, std::string_view key, size_t layer, int64_t least,
                 int64_t most) {
  const Json* value = config.find(key);
  if (value == nullptr || !value->is_array()) return config.integer(key, least, most);
  const auto list = config.integers(key, least, most);
  if (static_cast<int64_t>(list->size()) != layer_count(config)) {
    config.refuse(key, fmt::format("an integer or an array of {} integers", layer_count(config)));
  }
  return (*list)[layer];
}

FeedForward hunyuan_routed_part(const JsonFields& config, size_t layer) {
  const int64_t width = config.integer("intermediate_size", 1, kMaxWidth);
  FeedForward part;
  part.routed = true;
  part.experts = expert_count(config);
  part.width = config.has("moe_intermediate_size")
                   ? of_layer(config, "moe_intermediate_size", layer, 1, kMaxWidth)
                   : width;
  part.activation = describe_activation(config);
  part.router.top_k = static_cast<int>(of_layer(config, "moe_topk", layer, 1, part.experts));
  part.router.renormalise = true;
  if (!config.boolean_or("use_mixed_mlp_moe", true)) return part;
  const int64_t shared = config.has("num_shared_expert")
                             ? of_layer(config, "num_shared_expert", layer, 1, kMaxWidth / width)
                             : 1;
  part.shared = SharedExpert{.width = shared * width};
  return part;
}

// `alpha` makes "dynamic" a fixed stretch of the base, which no length changes.
void set_alpha(const JsonFields& config, ModelDescription& description) {
  const auto today = config.object("rope_parameters");
  const auto before = config.object("rope_scaling");
  const auto& fields = today ? today : before;
  Rope& rope = description.rope;
  if (!fields || !fields->has("alpha") || rope.kind != RopeKind::dynamic) return;
  const double alpha = fields->number("alpha", 1e-6, 1e9);
  const auto dims = static_cast<double>(rope.rotated_dims);
  rope.base *= std::pow(alpha, dims / (dims - 2.0));
  rope.kind = RopeKind::plain;
}

// Switches of published configs whose other values no released model of this kind has.
void refuse_other_hunyuan(const JsonFields& config) {
  refuse_switch(config, "use_cla");
  refuse_switch(config, "mlp_bias");
  if (config.string_or("norm_type", "rms") != "rms") config.refuse("norm_type", "rms");
}

ModelDescription describe_hunyuan(const JsonFields& config) {
  ModelDescription description = describe_common(config, 1e4);
  refuse_other_hunyuan(config);
  set_alpha(config, description);
  GroupedHeads attention = describe_attention(config);
  attention.qkv_bias = attention.output_bias = config.boolean_or("attention_bias", false);
  if (config.boolean_or("use_qk_norm", true)) attention.norm = HeadNorm::learned_after_rope;
  const int64_t count = layer_count(config);
  const int64_t dense = config.integer_or("moe_layer_num_skipped", 0, 0, count);
  for (int64_t i = 0; i < count; ++i) {
    const FeedForward part =
        i < dense ? dense_part(config, config.integer("intermediate_size", 1, kMaxWidth))
                  : hunyuan_routed_part(config, static_cast<size_t>(i));
    description.layers.push_back({attention, part});
  }
  return description;
}

void set_hunyuan_gguf_fields(const GgufModel& model, Json& config) {
  config["moe_topk"] = config["num_experts_per_tok"];
  config["use_qk_norm"] = model.has_tensor("blk.0.attn_q_norm.weight");
  config["use_mixed_mlp_moe"] = model.has_tensor("blk.0.ffn_gate_shexp.weight");
  config["num_shared_expert"] =
      model.metadata.integer_or(model.key("expert_shared_count"), 1, 1, kMaxWidth);
}

}  // namespace

const Family kHunyuanMoe = {"hunyuan_v1_moe",
                            describe_hunyuan,
                            kHunyuanTensors,
                            {.architecture = "hunyuan-moe", .set_fields = set_hunyuan_gguf_fields}};

}  // namespace klotski
