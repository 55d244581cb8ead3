// Granite MoE: factors of embeddings, residual sums, attention scores and logits; the matrices of
// all experts of a layer in two tensors, gate before up.

#include <array>

#include "model/families/common.h"
#include "model/families/families.h"

namespace klotski {

namespace {

constexpr std::array kGraniteTensors = {
    TensorPattern{Role::router, "model.layers.{layer}.block_sparse_moe.router.layer.weight"},
    TensorPattern{Role::expert_gate, "model.layers.{layer}.block_sparse_moe.input_linear.weight"},
    TensorPattern{Role::expert_up, "model.layers.{layer}.block_sparse_moe.input_linear.weight"},
    TensorPattern{Role::expert_down, "model.layers.{layer}.block_sparse_moe.output_linear.weight"},
};

float granite_factor(const JsonFields& config, std::string_view key) {
  return static_cast<float>(config.number_or(key, 1.0, 1e-9, 1e9));
}

ModelDescription describe_granite(const JsonFields& config) {
  ModelDescription description = describe_common(config, 1e4);
  description.embedding_scale = granite_factor(config, "embedding_multiplier");
  description.residual_scale = granite_factor(config, "residual_multiplier");
  description.logit_scale = 1.0f / granite_factor(config, "logits_scaling");
  Layer layer;
  GroupedHeads attention = describe_attention(config);
  attention.scale = granite_factor(config, "attention_multiplier");
  attention.qkv_bias = attention.output_bias = config.boolean_or("attention_bias", false);
  layer.attention = attention;
  // A softmax over the chosen logits is the renormalised softmax over all of them.
  layer.feed_forward = describe_softmax_experts(config);
  description.layers = repeat_layer(config, layer);
  return description;
}

void set_granite_gguf_fields(const GgufModel& model, Json& config) {
  const double usual_scale = describe_attention(model.fields(config)).scale;
  config["embedding_multiplier"] = model.factor("embedding_scale", 1.0);
  config["residual_multiplier"] = model.factor("residual_scale", 1.0);
  config["logits_scaling"] = model.factor("logit_scale", 1.0);
  config["attention_multiplier"] = model.factor("attention.scale", usual_scale);
}

}  // namespace

const Family kGraniteMoe = {"granitemoe",
                            describe_granite,
                            kGraniteTensors,
                            {.architecture = "granitemoe",
                             .neighbours_rotate = true,
                             .set_fields = set_granite_gguf_fields}};

}  // namespace klotski
