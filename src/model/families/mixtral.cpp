// Mixtral 8x7B and 8x22B: softmax router with renormalised weights, optional sliding window.

#include "model/families/common.h"
#include "model/families/families.h"

namespace klotski {

namespace {

ModelDescription describe_mixtral(const JsonFields& config) {
  ModelDescription description = describe_common(config, 1e6);
  Layer layer;
  GroupedHeads attention = describe_attention(config);
  attention.window = config.integer_or("sliding_window", 0, 1, kMaxPositions);
  layer.attention = attention;
  layer.feed_forward = describe_softmax_experts(config);
  description.layers = repeat_layer(config, layer);
  return description;
}

}  // namespace

const Family kMixtral = {
    "mixtral",
    describe_mixtral,
    kSparseBlockTensors,
    {.architecture = "llama", .neighbours_rotate = true, .renormalises = true}};

}  // namespace klotski
