// Phi-3.5-MoE: LayerNorm with bias, two experts by the sparse mixer, biases of attention and of the
// output projection on request.

#include "model/families/common.h"
#include "model/families/families.h"

namespace klotski {

namespace {

// The factor of sine and cosine is stated for short and for long sequences. The reference rotates
// long sequences by the frequencies of short ones, and so does this program.
void set_rope_scale(const JsonFields& config, ModelDescription& description) {
  Rope& rope = description.rope;
  if (rope.kind == RopeKind::plain) return;
  const auto today = config.object("rope_parameters");
  const JsonFields fields = today ? *today : *config.object("rope_scaling");
  if (rope.kind != RopeKind::longrope) {
    fields.refuse(fields.has("rope_type") ? "rope_type" : "type", "default or longrope");
  }
  rope.attention_factor = fields.number("short_mscale", 1e-6, 1e6);
  if (fields.number("long_mscale", 1e-6, 1e6) != rope.attention_factor) {
    fields.refuse("long_mscale", "the value of short_mscale, all that this program computes");
  }
  rope.long_factors = rope.short_factors;
}

ModelDescription describe_phi(const JsonFields& config) {
  ModelDescription description = describe_common(config, 1e6);
  set_rope_scale(config, description);
  description.norm = NormKind::layer;
  description.norm_bias = true;
  description.output_bias = config.boolean_or("lm_head_bias", false);
  Layer layer;
  GroupedHeads attention = describe_attention(config);
  attention.window = config.integer_or("sliding_window", 0, 1, kMaxPositions);
  attention.qkv_bias = attention.output_bias = config.boolean_or("attention_bias", false);
  layer.attention = attention;
  layer.feed_forward.routed = true;
  layer.feed_forward.experts = config.integer("num_local_experts", 2, kMaxExperts);
  layer.feed_forward.width = config.integer("intermediate_size", 1, kMaxWidth);
  layer.feed_forward.activation = describe_activation(config);
  RouterRule& router = layer.feed_forward.router;
  router.score = ScoreFunction::sparse_mixer;
  router.top_k = static_cast<int>(config.integer_or("num_experts_per_tok", 2, 2, 2));
  router.jitter = static_cast<float>(config.number_or("router_jitter_noise", 0.01, 0.0, 1e6));
  description.layers = repeat_layer(config, layer);
  return description;
}

void set_phi_gguf_fields(const GgufModel& model, Json& config) {
  config["num_local_experts"] = config["num_experts"];
  config["lm_head_bias"] = model.has_tensor("output.bias");
  const auto rope = config.find("rope_scaling");
  if (rope == config.end()) return;
  const Json factor = rope->value("attention_factor", Json(1.0));
  (*rope)["short_mscale"] = (*rope)["long_mscale"] = factor;
}

}  // namespace

const Family kPhiMoe = {"phimoe",
                        describe_phi,
                        kSparseBlockTensors,
                        {.architecture = "phimoe", .set_fields = set_phi_gguf_fields}};

}  // namespace klotski
