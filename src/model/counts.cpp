#include "model/counts.h"

#include <algorithm>

#include "model/tensors.h"

namespace klotski {

namespace {

int64_t elements(const std::vector<TensorSpec>& specs) {
  int64_t total = 0;
  for (const TensorSpec& spec : specs) {
    if (spec.repeated) continue;
    int64_t product = 1;
    for (const int64_t dimension : spec.shape) product *= dimension;
    total += product;
  }
  return total;
}

}  // namespace

ParameterCounts count_parameters(const ModelDescription& model) {
  ParameterCounts counts;
  counts.dense = elements(model_tensors(model));
  counts.active = counts.dense;
  for (int64_t i = 0; i < model.layer_count(); ++i) {
    const LayerId layer(i);
    const FeedForward& part = model.layer(layer).feed_forward;
    const int64_t shared =
        elements(attention_tensors(model, layer)) + elements(gate_tensors(model, layer));
    const int64_t one_expert = elements(expert_tensors(model, layer, ExpertId(0)));
    counts.dense += shared + (part.routed ? 0 : one_expert);
    counts.expert += part.routed ? part.experts * one_expert : 0;
    counts.active += shared + (part.routed ? part.router.top_k : 1) * one_expert;
  }
  return counts;
}

int64_t most_experts(const ModelDescription& model) {
  int64_t most = 1;
  for (const Layer& layer : model.layers) most = std::max(most, layer.feed_forward.experts);
  return most;
}

int64_t most_choices(const ModelDescription& model) {
  int64_t most = 1;
  for (const Layer& layer : model.layers) {
    if (layer.feed_forward.routed) {
      most = std::max<int64_t>(most, layer.feed_forward.router.top_k);
    }
  }
  return most;
}

int64_t kv_numbers_per_token(const ModelDescription& model) {
  int64_t numbers = 0;
  for (const Layer& layer : model.layers) {
    numbers += layer.attention.cache().numbers_per_position();
  }
  return numbers;
}

uint64_t state_bytes_per_sequence(const ModelDescription& model) {
  uint64_t bytes = 0;
  for (const Layer& layer : model.layers) bytes += layer.attention.cache().state_bytes;
  return bytes;
}

}  // namespace klotski
