#include "model/families/common.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/ranges.h>

#include "model/families/families.h"

namespace klotski {

namespace {

// HF's `rope_type` values; the older form also calls them `type`, and longrope `su`.
RopeKind rope_kind(const JsonFields& rope) {
  struct Name {
    std::string_view name;
    RopeKind kind;
  };
  static constexpr std::array<Name, 7> kNames = {{{"default", RopeKind::plain},
                                                  {"linear", RopeKind::linear},
                                                  {"dynamic", RopeKind::dynamic},
                                                  {"yarn", RopeKind::yarn},
                                                  {"llama3", RopeKind::llama3},
                                                  {"longrope", RopeKind::longrope},
                                                  {"su", RopeKind::longrope}}};
  const std::string_view key = rope.has("rope_type") ? "rope_type" : "type";
  const std::string type = rope.string_or(key, "default");
  for (const Name& name : kNames) {
    if (name.name == type) return name.kind;
  }
  rope.refuse(key, "one of default, linear, dynamic, yarn, llama3, longrope");
}

void describe_yarn(const JsonFields& fields, Rope& rope) {
  const double mscale = fields.number_or("mscale", 0.0, 0.0, 1e6);
  const double mscale_all = fields.number_or("mscale_all_dim", 0.0, 0.0, 1e6);
  const double suggested =
      mscale > 0.0 && mscale_all > 0.0
          ? yarn_magnitude(rope.factor, mscale) / yarn_magnitude(rope.factor, mscale_all)
          : yarn_magnitude(rope.factor, 1.0);
  rope.attention_factor = fields.number_or("attention_factor", suggested, 1e-6, 1e6);
  rope.beta_fast = fields.number_or("beta_fast", 32.0, 1e-6, 1e6);
  rope.beta_slow = fields.number_or("beta_slow", 1.0, 1e-6, 1e6);
  rope.truncate = fields.boolean_or("truncate", true);
}

std::vector<double> pair_factors(const JsonFields& fields, std::string_view key, int64_t pairs) {
  const auto factors = fields.numbers(key, 1e-6, 1e9);
  if (!factors || static_cast<int64_t>(factors->size()) != pairs) {
    fields.refuse(key, fmt::format("an array of {} numbers", pairs));
  }
  return *factors;
}

void describe_longrope(const JsonFields& fields, double factor, Rope& rope) {
  const int64_t pairs = rope.rotated_dims / 2;
  rope.short_factors = pair_factors(fields, "short_factor", pairs);
  rope.long_factors = pair_factors(fields, "long_factor", pairs);
  const double suggested =
      factor <= 1.0 ? 1.0
                    : std::sqrt(1.0 + std::log(factor) /
                                          std::log(static_cast<double>(rope.original_positions)));
  rope.attention_factor = fields.number_or("attention_factor", suggested, 1e-6, 1e6);
}

int64_t trained_positions(const JsonFields& config, const JsonFields& fields,
                          int64_t max_positions) {
  constexpr std::string_view kKey = "original_max_position_embeddings";
  return fields.has(kKey) ? fields.integer(kKey, 2, kMaxPositions)
                          : config.integer_or(kKey, max_positions, 2, kMaxPositions);
}

// The kinds that stretch a trained context: `fields` is the object that holds their parameters.
void describe_scaling(const JsonFields& config, const JsonFields& fields, Rope& rope) {
  const int64_t max_positions = config.integer("max_position_embeddings", 1, kMaxPositions);
  rope.original_positions = rope.kind == RopeKind::dynamic
                                ? max_positions
                                : trained_positions(config, fields, max_positions);
  const bool factor_optional = rope.kind == RopeKind::yarn || rope.kind == RopeKind::longrope;
  const double ratio =
      static_cast<double>(max_positions) / static_cast<double>(rope.original_positions);
  rope.factor = factor_optional ? fields.number_or("factor", ratio, 1e-6, 1e6)
                                : fields.number("factor", 1e-6, 1e6);
  if (rope.kind == RopeKind::dynamic && rope.rotated_dims <= 2) {
    fields.refuse(fields.has("rope_type") ? "rope_type" : "type",
                  "heads of more than 2 rotated dimensions for dynamic scaling");
  }
  if (rope.kind == RopeKind::yarn) describe_yarn(fields, rope);
  if (rope.kind == RopeKind::longrope) describe_longrope(fields, rope.factor, rope);
  if (rope.kind == RopeKind::llama3) {
    rope.low_frequency_factor = fields.number("low_freq_factor", 1e-6, 1e6);
    rope.high_frequency_factor = fields.number("high_freq_factor", 1e-6, 1e6);
    if (rope.high_frequency_factor <= rope.low_frequency_factor) {
      fields.refuse("high_freq_factor", "more than low_freq_factor");
    }
  }
}

// Some kinds stretch the context beyond the `max_position_embeddings` that the config states.
int64_t usable_positions(const Rope& rope, int64_t stated) {
  const auto stretched = [&](int64_t positions) {
    const double product = static_cast<double>(positions) * rope.factor;
    return std::max(stated, static_cast<int64_t>(std::min(product, double{kMaxPositions})));
  };
  switch (rope.kind) {
    case RopeKind::linear:
    case RopeKind::dynamic:
      return stretched(stated);
    case RopeKind::yarn:
      return stretched(rope.original_positions);
    default:
      return stated;
  }
}

}  // namespace

Rope describe_rope(const JsonFields& config, int64_t rotated_dims, double default_base) {
  const auto today = config.object("rope_parameters");
  const auto before = config.object("rope_scaling");
  const JsonFields& fields = today ? *today : before ? *before : config;
  // The base may stand in the object or, in the older form, at the top level.
  const double outer_base = config.number_or("rope_theta", default_base, 1.0, 1e12);

  Rope rope;
  rope.base = fields.number_or("rope_theta", outer_base, 1.0 + 1e-6, 1e12);
  rope.rotated_dims = rotated_dims;
  if (today || before) rope.kind = rope_kind(fields);
  if (rope.kind != RopeKind::plain) describe_scaling(config, fields, rope);
  return rope;
}

std::vector<TokenId> token_ids(const JsonFields& config, std::string_view key, int64_t vocabulary) {
  const Json* value = config.find(key);
  if (!value) return {};
  if (!value->is_array()) return {static_cast<TokenId>(config.integer(key, 0, vocabulary - 1))};
  const auto list = config.integers(key, 0, vocabulary - 1);
  return {list->begin(), list->end()};
}

void describe_tokens(const JsonFields& config, ModelDescription& description) {
  description.end_tokens = token_ids(config, "eos_token_id", description.vocabulary);
  if (config.has("bos_token_id")) {
    description.begin_token =
        static_cast<TokenId>(config.integer("bos_token_id", 0, description.vocabulary - 1));
  }
}

int64_t rotated_dims(const JsonFields& config, int64_t head_dim, double fallback) {
  constexpr std::string_view kKey = "partial_rotary_factor";
  const double outer = config.number_or(kKey, fallback, 1e-6, 1.0);
  const auto rope = config.object("rope_parameters");
  const double share = rope ? rope->number_or(kKey, outer, 1e-6, 1.0) : outer;
  const auto rotated = static_cast<int64_t>(static_cast<double>(head_dim) * share);
  if (rotated < 2 || rotated % 2 != 0) {
    config.refuse(kKey,
                  fmt::format("a part of {} numbers that is an even number of them", head_dim));
  }
  return rotated;
}

void set_gguf_routing(const GgufModel& model, Json& config) {
  constexpr std::array kFields = {
      GgufField{"leading_dense_block_count", "first_k_dense_replace"},
      GgufField{"expert_count", "n_routed_experts"},
      GgufField{"expert_shared_count", "n_shared_experts"},
      GgufField{"expert_group_count", "n_group"},
      GgufField{"expert_group_used_count", "topk_group"},
  };
  model.copy(kFields, config);
  config["norm_topk_prob"] = model.metadata.boolean_or(model.key("expert_weights_norm"), false);
  config["routed_scaling_factor"] = model.factor("expert_weights_scale", 1.0);
}

void set_gguf_rotation(const GgufModel& model, Json& config) {
  const int64_t head_dim = describe_attention(model.fields(config)).head_dim;
  const int64_t rotated =
      model.metadata.integer_or(model.key("rope.dimension_count"), head_dim, 2, head_dim);
  // Half a number more than the share, since rotated_dims() rounds down.
  const double share = (static_cast<double>(rotated) + 0.5) / static_cast<double>(head_dim);
  config["partial_rotary_factor"] = std::min(share, 1.0);
}

ModelDescription describe_common(const JsonFields& config, double default_rope_base) {
  return describe_common(config, default_rope_base, describe_attention(config).head_dim);
}

ModelDescription describe_common(const JsonFields& config, double default_rope_base,
                                 int64_t rotated_dims) {
  ModelDescription description;
  description.vocabulary = config.integer("vocab_size", 1, kMaxVocabulary);
  description.hidden = config.integer("hidden_size", 1, kMaxWidth);
  description.max_positions = config.integer("max_position_embeddings", 1, kMaxPositions);
  description.norm_epsilon = static_cast<float>(config.number("rms_norm_eps", 1e-12, 1e-1));
  description.tied_embeddings = config.boolean_or("tie_word_embeddings", false);
  describe_tokens(config, description);
  description.rope = describe_rope(config, rotated_dims, default_rope_base);
  description.max_positions = usable_positions(description.rope, description.max_positions);
  return description;
}

int64_t layer_count(const JsonFields& config) {
  return config.integer("num_hidden_layers", 1, kMaxLayers);
}

GroupedHeads describe_attention(const JsonFields& config) {
  GroupedHeads attention;
  attention.query_heads = config.integer("num_attention_heads", 1, kMaxWidth);
  attention.kv_heads =
      config.integer_or("num_key_value_heads", attention.query_heads, 1, kMaxWidth);
  if (attention.query_heads % attention.kv_heads != 0) {
    config.refuse("num_key_value_heads",
                  fmt::format("a divisor of num_attention_heads ({})", attention.query_heads));
  }
  if (config.has("head_dim")) {
    attention.head_dim = config.integer("head_dim", 1, kMaxWidth);
  } else {
    const int64_t hidden = config.integer("hidden_size", 1, kMaxWidth);
    if (hidden % attention.query_heads != 0) {
      config.refuse("hidden_size",
                    fmt::format("a multiple of num_attention_heads ({})", attention.query_heads));
    }
    attention.head_dim = hidden / attention.query_heads;
  }
  if (attention.head_dim % 2 != 0) {
    config.refuse(config.has("head_dim") ? "head_dim" : "num_attention_heads",
                  "heads of an even number of dimensions, for rope");
  }
  if (attention.query_width() > kMaxWidth) {
    config.refuse("head_dim", fmt::format("heads of at most {} numbers together", kMaxWidth));
  }
  attention.scale = 1.0f / std::sqrt(static_cast<float>(attention.head_dim));
  return attention;
}

Activation describe_activation(const JsonFields& config, std::string_view key) {
  struct Name {
    std::string_view name;
    Activation activation;
  };
  static constexpr std::array<Name, 6> kNames = {{{"silu", Activation::silu},
                                                  {"swish", Activation::silu},
                                                  {"gelu", Activation::gelu},
                                                  {"gelu_pytorch_tanh", Activation::gelu_tanh},
                                                  {"gelu_new", Activation::gelu_tanh},
                                                  {"relu", Activation::relu}}};
  const std::string wanted = config.string_or(key, "silu");
  for (const Name& name : kNames) {
    if (name.name == wanted) return name.activation;
  }
  config.refuse(key, "one of silu, gelu, gelu_pytorch_tanh, relu");
}

void require_present(const JsonFields& config, std::initializer_list<std::string_view> keys) {
  for (const std::string_view key : keys) {
    if (!config.has(key)) config.refuse(key, "a number, which this family has no usual value for");
  }
}

double yarn_magnitude(double factor, double mscale) {
  return factor <= 1.0 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0;
}

FeedForward describe_softmax_experts(const JsonFields& config, std::string_view width_key) {
  FeedForward part;
  part.routed = true;
  part.experts = expert_count(config);
  part.width = config.integer(width_key, 1, kMaxWidth);
  part.activation = describe_activation(config);
  part.router = describe_softmax_router(config, part.experts);
  part.router.renormalise = true;
  return part;
}

void refuse_partial_rotation(const JsonFields& config) {
  constexpr std::string_view kKey = "partial_rotary_factor";
  const auto check = [&](const JsonFields& fields) {
    if (fields.number_or(kKey, 1.0, 0.0, 1.0) != 1.0) fields.refuse(kKey, "1, or none");
  };
  check(config);
  for (const std::string_view name : {"rope_parameters", "rope_scaling"}) {
    if (const auto fields = config.object(name)) check(*fields);
  }
}

std::vector<std::string> layer_types(const JsonFields& config,
                                     std::initializer_list<std::string_view> known) {
  constexpr std::string_view kKey = "layer_types";
  const auto types = config.strings(kKey);
  if (!types) return {};
  const auto count = static_cast<size_t>(layer_count(config));
  if (types->size() != count) config.refuse(kKey, fmt::format("an array of {} strings", count));
  for (const std::string& type : *types) {
    if (std::find(known.begin(), known.end(), type) != known.end()) continue;
    config.refuse(kKey, fmt::format("one of {} for every layer", fmt::join(known, ", ")));
  }
  return *types;
}

int64_t expert_count(const JsonFields& config) {
  const std::string_view key = config.has("num_experts") ? "num_experts" : "num_local_experts";
  return config.integer(key, 1, kMaxExperts);
}

FeedForward dense_part(const JsonFields& config, int64_t width) {
  FeedForward part;
  part.width = width;
  part.activation = describe_activation(config);
  return part;
}

void refuse_switch(const JsonFields& config, std::string_view key) {
  if (config.boolean_or(key, false)) config.refuse(key, "false, all that this program computes");
}

RouterRule describe_softmax_router(const JsonFields& config, int64_t experts) {
  RouterRule rule;
  rule.score = ScoreFunction::softmax;
  rule.top_k = static_cast<int>(config.integer("num_experts_per_tok", 1, experts));
  return rule;
}

std::vector<Layer> repeat_layer(const JsonFields& config, const Layer& layer) {
  return std::vector<Layer>(static_cast<size_t>(layer_count(config)), layer);
}

void add_sparse_layers(std::vector<Layer>& to, const SparseLayers& sparse, const Layer& layer,
                       const FeedForward& routed) {
  for (int64_t i = 0; i < sparse.layers; ++i) {
    to.push_back(layer);
    if (sparse.step > 0 && i % sparse.step == sparse.first) to.back().feed_forward = routed;
  }
}

void refuse_other_router_types(const JsonFields& config) {
  if (config.string_or("router_dtype", "float32") != "float32") {
    config.refuse("router_dtype", "float32, all that this program computes");
  }
}

}  // namespace klotski
