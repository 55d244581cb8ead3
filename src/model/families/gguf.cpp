// GGUF files of the families: metadata as fields of a config.json, and the names of tensors.

#include <array>
#include <string>

#include "base/error.h"
#include "model/config.h"
#include "model/families/families.h"
#include "model/families/gguf_checks.h"
#include "weights/gguf.h"

namespace klotski {

namespace {

// A key of the metadata, after the architecture and a dot, and the field that has its value.
struct GgufField {
  std::string_view key;
  std::string_view field;
};
constexpr std::array kGgufFields = {
    GgufField{"block_count", "num_hidden_layers"},
    GgufField{"context_length", "max_position_embeddings"},
    GgufField{"embedding_length", "hidden_size"},
    GgufField{"feed_forward_length", "intermediate_size"},
    GgufField{"expert_feed_forward_length", "moe_intermediate_size"},
    GgufField{"expert_shared_feed_forward_length", "shared_expert_intermediate_size"},
    GgufField{"expert_count", "num_experts"},
    GgufField{"expert_used_count", "num_experts_per_tok"},
    GgufField{"attention.head_count", "num_attention_heads"},
    GgufField{"attention.head_count_kv", "num_key_value_heads"},
    GgufField{"attention.key_length", "head_dim"},
    GgufField{"attention.layer_norm_rms_epsilon", "rms_norm_eps"},
    GgufField{"attention.sliding_window", "sliding_window"},
    GgufField{"attention.clamp_kqv", "clip_qkv"},
    GgufField{"rope.freq_base", "rope_theta"},
};
// Fields of families with latent attention.
constexpr std::array kGgufLatentFields = {
    GgufField{"attention.q_lora_rank", "q_lora_rank"},
    GgufField{"attention.kv_lora_rank", "kv_lora_rank"},
    GgufField{"rope.dimension_count", "qk_rope_head_dim"},
    GgufField{"leading_dense_block_count", "first_k_dense_replace"},
    GgufField{"expert_count", "n_routed_experts"},
    GgufField{"expert_shared_count", "n_shared_experts"},
    GgufField{"expert_group_count", "n_group"},
    GgufField{"expert_group_used_count", "topk_group"},
    GgufField{"expert_weights_scale", "routed_scaling_factor"},
};
constexpr std::array kGgufYarnFields = {
    GgufField{"rope.scaling.original_context_length", "original_max_position_embeddings"},
    GgufField{"rope.scaling.yarn_beta_fast", "beta_fast"},
    GgufField{"rope.scaling.yarn_beta_slow", "beta_slow"},
};

constexpr std::array kGgufTensors = {
    TensorPattern{Role::embedding, "token_embd.weight"},
    TensorPattern{Role::final_norm, "output_norm.weight"},
    TensorPattern{Role::output, "output.weight"},
    TensorPattern{Role::attention_norm, "blk.{layer}.attn_norm.weight"},
    TensorPattern{Role::query, "blk.{layer}.attn_q.weight"},
    TensorPattern{Role::query_bias, "blk.{layer}.attn_q.bias"},
    TensorPattern{Role::key, "blk.{layer}.attn_k.weight"},
    TensorPattern{Role::key_bias, "blk.{layer}.attn_k.bias"},
    TensorPattern{Role::value, "blk.{layer}.attn_v.weight"},
    TensorPattern{Role::value_bias, "blk.{layer}.attn_v.bias"},
    TensorPattern{Role::query_norm, "blk.{layer}.attn_q_norm.weight"},
    TensorPattern{Role::key_norm, "blk.{layer}.attn_k_norm.weight"},
    TensorPattern{Role::sinks, "blk.{layer}.attn_sinks.weight"},
    TensorPattern{Role::query_down, "blk.{layer}.attn_q_a.weight"},
    TensorPattern{Role::query_down_bias, "blk.{layer}.attn_q_a.bias"},
    TensorPattern{Role::query_down_norm, "blk.{layer}.attn_q_a_norm.weight"},
    TensorPattern{Role::query_up, "blk.{layer}.attn_q_b.weight"},
    TensorPattern{Role::latent_down, "blk.{layer}.attn_kv_a_mqa.weight"},
    TensorPattern{Role::latent_down_bias, "blk.{layer}.attn_kv_a_mqa.bias"},
    TensorPattern{Role::latent_norm, "blk.{layer}.attn_kv_a_norm.weight"},
    TensorPattern{Role::latent_up, "blk.{layer}.attn_kv_b.weight"},
    TensorPattern{Role::latent_key_up, "blk.{layer}.attn_k_b.weight"},
    TensorPattern{Role::latent_value_up, "blk.{layer}.attn_v_b.weight"},
    TensorPattern{Role::attention_output, "blk.{layer}.attn_output.weight"},
    TensorPattern{Role::attention_output_bias, "blk.{layer}.attn_output.bias"},
    TensorPattern{Role::feed_forward_norm, "blk.{layer}.ffn_norm.weight"},
    TensorPattern{Role::router, "blk.{layer}.ffn_gate_inp.weight"},
    TensorPattern{Role::router_bias, "blk.{layer}.ffn_gate_inp.bias"},
    TensorPattern{Role::selection_bias, "blk.{layer}.exp_probs_b.bias"},
    TensorPattern{Role::dense_gate, "blk.{layer}.ffn_gate.weight"},
    TensorPattern{Role::dense_up, "blk.{layer}.ffn_up.weight"},
    TensorPattern{Role::dense_down, "blk.{layer}.ffn_down.weight"},
    TensorPattern{Role::shared_gate, "blk.{layer}.ffn_gate_shexp.weight"},
    TensorPattern{Role::shared_up, "blk.{layer}.ffn_up_shexp.weight"},
    TensorPattern{Role::shared_down, "blk.{layer}.ffn_down_shexp.weight"},
    TensorPattern{Role::shared_scale, "blk.{layer}.ffn_gate_inp_shexp.weight"},
    TensorPattern{Role::expert_gate_bias, "blk.{layer}.ffn_gate_exps.bias"},
    TensorPattern{Role::expert_up_bias, "blk.{layer}.ffn_up_exps.bias"},
    TensorPattern{Role::expert_down_bias, "blk.{layer}.ffn_down_exps.bias"},
};
// All experts of a layer in one tensor, and one tensor an expert as files up to early 2024 have.
constexpr std::array kMergedExperts = {
    TensorPattern{Role::expert_gate, "blk.{layer}.ffn_gate_exps.weight"},
    TensorPattern{Role::expert_up, "blk.{layer}.ffn_up_exps.weight"},
    TensorPattern{Role::expert_down, "blk.{layer}.ffn_down_exps.weight"},
};
constexpr std::array kSingleExperts = {
    TensorPattern{Role::expert_gate, "blk.{layer}.ffn_gate.{expert}.weight"},
    TensorPattern{Role::expert_up, "blk.{layer}.ffn_up.{expert}.weight"},
    TensorPattern{Role::expert_down, "blk.{layer}.ffn_down.{expert}.weight"},
};

const Family& family_of(const JsonFields& metadata) {
  const std::string architecture = metadata.string("general.architecture");
  constexpr int64_t kSigmoid = 2;  // number of the function in metadata; no number: softmax
  const int64_t function = metadata.integer_or(architecture + ".expert_gating_func", 0, 0, 1000);
  const ScoreFunction score =
      function == kSigmoid ? ScoreFunction::sigmoid : ScoreFunction::softmax;
  const Family* alike = nullptr;  // a family of the architecture
  std::string known;
  for (const Family& family : families()) {
    if (family.gguf.architecture.empty()) continue;  // there are no such files
    if (family.gguf.architecture == architecture) {
      if (family.gguf.score == score) return family;
      alike = &family;
    }
    if (known.ends_with(family.gguf.architecture)) continue;
    known += (known.empty() ? "" : ", ") + std::string(family.gguf.architecture);
  }
  if (alike != nullptr) return *alike;  // check_gguf_metadata() refuses its function
  metadata.refuse("general.architecture", "one of " + known);
}

template <size_t count>
void copy_fields(const JsonFields& metadata, std::string_view architecture,
                 const std::array<GgufField, count>& fields, Json& config) {
  for (const GgufField& field : fields) {
    const Json* value = metadata.find(fmt::format("{}.{}", architecture, field.key));
    if (value != nullptr) config.emplace(field.field, *value);
  }
}

// Sets the base and the scaling of rope. A factor without a type means linear scaling.
void set_rope(const JsonFields& metadata, std::string_view architecture, Json& config) {
  constexpr double kBase = 10'000.0;  // that of files which state none
  config.emplace("rope_theta", kBase);
  const auto key_of = [&](std::string_view key) { return fmt::format("{}.{}", architecture, key); };
  std::string factor = key_of("rope.scaling.factor");
  const std::string old_factor = key_of("rope.scale_linear");
  if (!metadata.has(factor) && metadata.has(old_factor)) factor = old_factor;
  const double stretch = metadata.number_or(factor, 0.0, 0.0, 1e6);
  const bool stretches = stretch != 0.0 && stretch != 1.0;

  const std::string type = key_of("rope.scaling.type");
  const std::string scaling = metadata.string_or(type, stretches ? "linear" : "none");
  if (scaling != "none" && scaling != "linear" && scaling != "yarn") {
    metadata.refuse(type, "one of none, linear, yarn");
  }
  const bool latent = config.contains("kv_lora_rank");
  check_gguf_rope_scaling(metadata, architecture, scaling == "yarn", latent);
  if (scaling == "none") return;
  Json rope = {{"rope_type", scaling}, {"factor", metadata.number(factor, 1e-6, 1e6)}};
  if (scaling == "yarn") copy_fields(metadata, architecture, kGgufYarnFields, rope);
  // Converters write a tenth of mscale_all_dim, and leave out mscale, which equals it.
  const std::string sharpening = key_of("rope.scaling.yarn_log_multiplier");
  if (latent && metadata.has(sharpening)) {
    rope["mscale"] = rope["mscale_all_dim"] = 10.0 * metadata.number(sharpening, 0.0, 1e5);
  }
  config.emplace("rope_scaling", std::move(rope));
}

// Sets the fields of latent attention and of the routers beside it.
void set_latent(const JsonFields& metadata, std::string_view architecture, Json& config) {
  const auto key_of = [&](std::string_view key) { return fmt::format("{}.{}", architecture, key); };
  if (!metadata.has(key_of("attention.kv_lora_rank"))) return;
  copy_fields(metadata, architecture, kGgufLatentFields, config);
  // Files with W_uk and W_uv apart state the widths of absorbed heads as well, and one head of
  // keys.
  const bool absorbed = metadata.has(key_of("attention.key_length_mla"));
  const std::string key_length =
      key_of(absorbed ? "attention.key_length_mla" : "attention.key_length");
  const std::string value_length =
      key_of(absorbed ? "attention.value_length_mla" : "attention.value_length");
  constexpr int64_t kMost = int64_t{1} << 40;
  const int64_t rotated = metadata.integer(key_of("rope.dimension_count"), 1, kMost);
  config["qk_nope_head_dim"] = metadata.integer(key_length, rotated + 1, kMost) - rotated;
  config["v_head_dim"] = metadata.integer(value_length, 1, kMost);
  config.erase("num_key_value_heads");
  config["norm_topk_prob"] = metadata.boolean_or(key_of("expert_weights_norm"), false);
  // A scale that is not stated, or stated as 0, is none.
  if (metadata.number_or(key_of("expert_weights_scale"), 0.0, -1e9, 1e9) == 0.0) {
    config["routed_scaling_factor"] = 1.0;
  }
  if (metadata.integer_or(key_of("expert_group_count"), 1, 1, kMost) > 1 &&
      metadata.integer_or(key_of("expert_gating_func"), 1, 0, 1000) <= 1) {
    config["topk_method"] = "group_limited_greedy";
  }
}

// Whether experts of a routed layer are one tensor.
bool has_merged_experts(const TensorSource& source, const ModelDescription& model) {
  for (size_t i = 0; i < model.layers.size(); ++i) {
    if (!model.layers[i].feed_forward.routed) continue;
    return source.find(fmt::format("blk.{}.ffn_gate_exps.weight", i)) != nullptr;
  }
  return false;
}

// Facts about a layer's attention that only the tensors show.
void set_latent_from_tensors(const TensorSource& source, ModelDescription& model) {
  for (Layer& layer : model.layers) {
    auto* latent = std::get_if<LatentAttention>(&layer.attention.kind);
    if (latent != nullptr) latent->apart = source.find("blk.0.attn_k_b.weight") != nullptr;
  }
}

// Generation ends at any of these tokens.
Json end_tokens(const JsonFields& metadata) {
  Json tokens = Json::array();
  for (const std::string_view kind : {"eos", "eot", "eom"}) {
    const Json* id = metadata.find(fmt::format("tokenizer.ggml.{}_token_id", kind));
    if (id != nullptr) tokens.push_back(*id);
  }
  return tokens;
}

// Facts that the tensors show: which there are, and how many tokens have an embedding.
void set_from_tensors(const TensorSource& source, Json& config) {
  const Shape& embedding = source.require("token_embd.weight").shape;
  if (!embedding.empty()) config["vocab_size"] = embedding.front();
  config["tie_word_embeddings"] = source.find("output.weight") == nullptr;
  config["attention_bias"] = source.find("blk.0.attn_output.bias") != nullptr;
  config["qkv_bias"] = source.find("blk.0.attn_q.bias") != nullptr;
}

}  // namespace

ModelDescription read_gguf_description(const TensorSource& source) {
  const std::string what = path_in_quotes(source.folder());
  const GgufFile file = read_gguf(*source.file(0), what);
  const JsonFields metadata(file.metadata, what, "metadata");
  const Family& family = family_of(metadata);
  const std::string_view architecture = family.gguf.architecture;
  metadata.integer(fmt::format("{}.expert_count", architecture), 1, INT64_MAX);

  Json config = {{"norm_topk_prob", family.gguf.renormalises},
                 {"eos_token_id", end_tokens(metadata)}};
  copy_fields(metadata, architecture, kGgufFields, config);
  set_latent(metadata, architecture, config);
  set_rope(metadata, architecture, config);
  if (const Json* begin = metadata.find("tokenizer.ggml.bos_token_id")) {
    config["bos_token_id"] = *begin;
  }
  set_from_tensors(source, config);

  const JsonFields fields(config, what + ", metadata as fields of a config.json");
  ModelDescription description = family.describe(fields);
  description.family = family.model_type;
  description.rope.interleaved = family.gguf.neighbours_rotate;
  description.rope.truncate = family.gguf.truncates_yarn;
  set_latent_from_tensors(source, description);
  check_gguf_metadata(metadata, family.gguf, description);
  const auto own_names = family.gguf.tensor_names;
  description.tensor_names.assign(own_names.begin(), own_names.end());
  description.tensor_names.insert(description.tensor_names.end(), kGgufTensors.begin(),
                                  kGgufTensors.end());
  const auto& experts = has_merged_experts(source, description) ? kMergedExperts : kSingleExperts;
  description.tensor_names.insert(description.tensor_names.end(), experts.begin(), experts.end());
  refuse_unread_tensors(source, description);
  return description;
}

}  // namespace klotski
