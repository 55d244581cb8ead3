// OLMoE: many small experts, queries and keys normalised over their whole width, optional clamp.

#include "model/families/common.h"
#include "model/families/families.h"

namespace klotski {

namespace {

ModelDescription describe_olmoe(const JsonFields& config) {
  ModelDescription description = describe_common(config, 1e4);
  Layer layer;
  GroupedHeads attention = describe_attention(config);
  attention.norm = HeadNorm::whole;
  attention.clip = static_cast<float>(config.number_or("clip_qkv", 0.0, 1e-6, 1e6));
  attention.qkv_bias = attention.output_bias = config.boolean_or("attention_bias", false);
  layer.attention = attention;
  layer.feed_forward.routed = true;
  layer.feed_forward.experts = expert_count(config);
  layer.feed_forward.width = config.integer("intermediate_size", 1, kMaxWidth);
  layer.feed_forward.activation = describe_activation(config);
  layer.feed_forward.router = describe_softmax_router(config, layer.feed_forward.experts);
  layer.feed_forward.router.renormalise = config.boolean_or("norm_topk_prob", false);
  description.layers = repeat_layer(config, layer);
  return description;
}

}  // namespace

const Family kOlmoe = {"olmoe", describe_olmoe, {}, {.architecture = "olmoe"}};

}  // namespace klotski
