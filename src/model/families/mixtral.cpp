// Mixtral 8x7B and 8x22B: softmax router with renormalised weights, optional sliding window.

#include <array>

#include "model/families/common.h"
#include "model/families/families.h"

namespace klotski {

namespace {

constexpr std::array kTensorNames = {
    TensorPattern{Role::router, "model.layers.{layer}.block_sparse_moe.gate.weight"},
    TensorPattern{Role::expert_gate,
                  "model.layers.{layer}.block_sparse_moe.experts.{expert}.w1.weight"},
    TensorPattern{Role::expert_up,
                  "model.layers.{layer}.block_sparse_moe.experts.{expert}.w3.weight"},
    TensorPattern{Role::expert_down,
                  "model.layers.{layer}.block_sparse_moe.experts.{expert}.w2.weight"},
};

ModelDescription describe_mixtral(const JsonFields& config) {
  ModelDescription description = describe_common(config, 1e6);
  Layer layer;
  GroupedHeads attention = describe_attention(config);
  attention.window = config.integer_or("sliding_window", 0, 1, kMaxPositions);
  layer.attention = attention;
  layer.feed_forward.routed = true;
  layer.feed_forward.experts = expert_count(config);
  layer.feed_forward.width = config.integer("intermediate_size", 1, kMaxWidth);
  layer.feed_forward.activation = describe_activation(config);
  layer.feed_forward.router = describe_softmax_router(config, layer.feed_forward.experts);
  layer.feed_forward.router.renormalise = true;
  description.layers = repeat_layer(config, layer);
  return description;
}

}  // namespace

const Family kMixtral = {
    "mixtral",
    describe_mixtral,
    kTensorNames,
    {.architecture = "llama", .neighbours_rotate = true, .renormalises = true}};

}  // namespace klotski
