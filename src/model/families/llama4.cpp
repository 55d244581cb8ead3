// Llama 4's text model: attention within chunks in most layers, without positions and with scaled
// queries in others; a router whose scores scale the inputs of experts; a shared expert; layers
// that may be dense.

#include <algorithm>
#include <array>

#include "model/families/common.h"
#include "model/families/families.h"

namespace klotski {

namespace {

constexpr std::array kLlama4Tensors = {
    TensorPattern{Role::router, "model.layers.{layer}.feed_forward.router.weight"},
    TensorPattern{Role::shared_gate,
                  "model.layers.{layer}.feed_forward.shared_expert.gate_proj.weight"},
    TensorPattern{Role::shared_up,
                  "model.layers.{layer}.feed_forward.shared_expert.up_proj.weight"},
    TensorPattern{Role::shared_down,
                  "model.layers.{layer}.feed_forward.shared_expert.down_proj.weight"},
    TensorPattern{Role::expert_gate, "model.layers.{layer}.feed_forward.experts.gate_up_proj",
                  false, true},
    TensorPattern{Role::expert_up, "model.layers.{layer}.feed_forward.experts.gate_up_proj", false,
                  true},
    TensorPattern{Role::expert_down, "model.layers.{layer}.feed_forward.experts.down_proj", false,
                  true},
    TensorPattern{Role::dense_gate, "model.layers.{layer}.feed_forward.gate_proj.weight"},
    TensorPattern{Role::dense_up, "model.layers.{layer}.feed_forward.up_proj.weight"},
    TensorPattern{Role::dense_down, "model.layers.{layer}.feed_forward.down_proj.weight"},
};

constexpr int64_t kTemperatureStep = 8192;  // positions

// Whether each layer's queries and keys are rotated.
std::vector<bool> rotated_layers(const JsonFields& config, int64_t count) {
  const auto listed = config.integers("no_rope_layers", 0, 1);
  if (listed && !listed->empty()) {
    if (std::ssize(*listed) < count) {
      config.refuse("no_rope_layers", fmt::format("an array of {} numbers", count));
    }
    return {listed->begin(), listed->begin() + count};
  }
  const int64_t interval = config.integer_or("no_rope_layer_interval", 4, 1, kMaxLayers);
  std::vector<bool> rotated;
  for (int64_t i = 0; i < count; ++i) rotated.push_back((i + 1) % interval != 0);
  return rotated;
}

std::vector<bool> routed_layers(const JsonFields& config, int64_t count) {
  std::vector<bool> routed(static_cast<size_t>(count), false);
  const auto listed = config.integers("moe_layers", 0, kMaxLayers);
  const int64_t step = config.integer_or("interleave_moe_layer_step", 1, 1, kMaxLayers);
  for (int64_t i = 0; i < count; ++i) {
    routed[static_cast<size_t>(i)] =
        listed ? std::find(listed->begin(), listed->end(), i) != listed->end()
               : (i + 1) % step == 0;
  }
  return routed;
}

FeedForward input_scaled_part(const JsonFields& config) {
  FeedForward part;
  part.routed = true;
  part.experts = expert_count(config);
  part.width = config.integer("intermediate_size", 1, kMaxWidth);
  part.activation = describe_activation(config);
  part.router.score = ScoreFunction::sigmoid;
  part.router.top_k = static_cast<int>(config.integer("num_experts_per_tok", 1, part.experts));
  part.scales_inputs = true;
  part.shared = SharedExpert{.width = part.width};
  return part;
}

// Whether queries of layers without positions are scaled; older files have a number here.
bool tunes_temperature(const JsonFields& config) {
  constexpr std::string_view kKey = "attn_temperature_tuning";
  const Json* value = config.find(kKey);
  if (value != nullptr && value->is_number()) return config.integer(kKey, 0, INT32_MAX) != 0;
  return config.boolean_or(kKey, true);
}

void set_chunks(const JsonFields& config, std::vector<Layer>& layers,
                const std::vector<bool>& rotated) {
  const std::vector<std::string> types =
      layer_types(config, {"chunked_attention", "full_attention"});
  for (size_t i = 0; i < layers.size(); ++i) {
    if (types.empty() ? !rotated[i] : types[i] == "full_attention") continue;
    layers[i].attention.grouped_heads().chunk =
        config.integer("attention_chunk_size", 1, kMaxPositions);
  }
}

ModelDescription describe_llama4(const JsonFields& config) {
  require_present(config, {"head_dim", "num_key_value_heads"});
  refuse_partial_rotation(config);
  ModelDescription description = describe_common(config, 500000.0);
  description.rope.interleaved = true;
  GroupedHeads attention = describe_attention(config);
  attention.qkv_bias = attention.output_bias = config.boolean_or("attention_bias", false);
  const bool normed = config.boolean_or("use_qk_norm", true);
  const bool tempered = tunes_temperature(config);
  if (tempered) {
    description.query_temperature = {
        config.integer_or("floor_scale", kTemperatureStep, 1, kMaxPositions),
        config.number_or("attn_scale", 0.1, -1e3, 1e3)};
  }
  const FeedForward routed = input_scaled_part(config);
  FeedForward dense;
  dense.width = config.integer_or("intermediate_size_mlp", 16384, 1, kMaxWidth);
  dense.activation = routed.activation;
  const int64_t count = layer_count(config);
  const std::vector<bool> rotates = rotated_layers(config, count);
  const std::vector<bool> routes = routed_layers(config, count);
  for (size_t i = 0; i < rotates.size(); ++i) {
    attention.rotated = rotates[i];
    attention.norm = normed && rotates[i] ? HeadNorm::after_rope : HeadNorm::none;
    attention.tempered = tempered && !rotates[i];
    description.layers.push_back({attention, routes[i] ? routed : dense});
  }
  set_chunks(config, description.layers, rotates);
  return description;
}

// Metadata name neither the layers without positions nor the size of chunks: both are those of the
// published models, where a window of 0 does not say that there are none. Models of 128 experts do
// not normalise heads.
void set_llama4_gguf_fields(const GgufModel& model, Json& config) {
  constexpr int64_t kChunk = 8192;
  constexpr int64_t kExpertsWithoutNorm = 128;
  const JsonFields& metadata = model.metadata;
  const std::string window = model.key("attention.sliding_window");
  const bool chunks = metadata.integer_or(window, kChunk, 0, kMaxPositions) != 0;
  const int64_t layers = layer_count(model.fields(config));
  if (!chunks) config["no_rope_layers"] = std::vector<int>(static_cast<size_t>(layers), 1);
  config["attention_chunk_size"] = kChunk;
  config["layer_types"] = Json();
  if (!chunks) {
    config["layer_types"] = std::vector<std::string>(static_cast<size_t>(layers), "full_attention");
  }
  config["attn_temperature_tuning"] = chunks;
  config["interleave_moe_layer_step"] =
      metadata.integer(model.key("interleave_moe_layer_step"), 1, kMaxLayers);
  config["intermediate_size_mlp"] = config["intermediate_size"];
  config["intermediate_size"] = config["moe_intermediate_size"];
  const int64_t experts = metadata.integer(model.key("expert_count"), 1, kMaxExperts);
  config["use_qk_norm"] = experts != kExpertsWithoutNorm;
  if (!config.contains("head_dim")) {
    config["head_dim"] = describe_attention(model.fields(config)).head_dim;
  }
}

}  // namespace

const Family kLlama4Text = {"llama4_text",
                            describe_llama4,
                            kLlama4Tensors,
                            {.architecture = "llama4",
                             .neighbours_rotate = true,
                             .score = ScoreFunction::sigmoid,
                             .set_fields = set_llama4_gguf_fields}};

}  // namespace klotski
