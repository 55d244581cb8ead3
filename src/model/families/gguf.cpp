// GGUF files of the families: metadata as fields of a config.json, and the names of tensors.

#include <array>
#include <string>

#include "base/error.h"
#include "model/config.h"
#include "model/families/common.h"
#include "model/families/families.h"
#include "model/families/gguf_checks.h"
#include "weights/gguf.h"

namespace klotski {

namespace {

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
constexpr std::array kGgufYarnFields = {
    GgufField{"rope.scaling.original_context_length", "original_max_position_embeddings"},
    GgufField{"rope.scaling.yarn_beta_fast", "beta_fast"},
    GgufField{"rope.scaling.yarn_beta_slow", "beta_slow"},
};

constexpr std::array kGgufTensors = {
    TensorPattern{Role::embedding, "token_embd.weight"},
    TensorPattern{Role::final_norm, "output_norm.weight"},
    TensorPattern{Role::final_norm_bias, "output_norm.bias"},
    TensorPattern{Role::output, "output.weight"},
    TensorPattern{Role::output_bias, "output.bias"},
    TensorPattern{Role::attention_norm, "blk.{layer}.attn_norm.weight"},
    TensorPattern{Role::attention_norm_bias, "blk.{layer}.attn_norm.bias"},
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
    TensorPattern{Role::feed_forward_norm_bias, "blk.{layer}.ffn_norm.bias"},
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

// Corrects fields whose metadata count what this program does not compute: the last blocks may
// predict further tokens, and a window of 0 is none.
void drop_unread_fields(const GgufModel& model, Json& config) {
  const int64_t further = model.further_layers();
  if (further > 0) {
    const std::string blocks = model.key("block_count");
    config["num_hidden_layers"] = model.metadata.integer(blocks, further + 1, kMaxLayers) - further;
  }
  const auto window = config.find("sliding_window");
  if (window != config.end() && *window == 0) config.erase(window);
}

// The numbers of a tensor by which the wavelength of each rotated pair is multiplied.
std::vector<float> pair_factors(const TensorSource& source, const TensorEntry& entry) {
  if (entry.dtype != DType::F32 || entry.shape.size() != 1 || entry.shape.front() > kMaxWidth) {
    fail(ErrorKind::bad_model, "{}: tensor {}: expected a list of F32 numbers, found {} of {}",
         path_in_quotes(source.folder()), in_quotes(entry.name), format_shape(entry.shape),
         dtype_name(entry.dtype));
  }
  std::vector<float> factors(static_cast<size_t>(entry.shape.front()));
  source.read(entry, std::as_writable_bytes(std::span(factors)));
  return factors;
}

// Sets the scaling of rope that files have as tensors: factors for all lengths, or for short and
// for long sequences. Says whether there are any.
bool set_rope_factors(const GgufModel& model, Json& config) {
  const auto factors_of = [&](std::string_view name) {
    return pair_factors(model.tensors, model.tensors.require(name));
  };
  const bool by_length = model.has_tensor(kGgufLongFactors);
  if (!by_length && !model.has_tensor(kGgufFactors)) return false;
  const std::string type = model.key("rope.scaling.type");
  const std::string scaling = model.metadata.string_or(type, "none");
  if (scaling != "none" && scaling != "longrope") {
    model.metadata.refuse(type, "none or longrope, as the file has factors of rope as tensors");
  }
  constexpr int64_t kMost = int64_t{1} << 40;
  const int64_t context = model.metadata.integer(model.key("context_length"), 1, kMost);
  const std::string trained = model.key("rope.scaling.original_context_length");
  config["rope_scaling"] = {
      {"rope_type", "longrope"},
      {"short_factor", factors_of(by_length ? kGgufShortFactors : kGgufFactors)},
      {"long_factor", factors_of(by_length ? kGgufLongFactors : kGgufFactors)},
      {"original_max_position_embeddings",
       by_length ? model.metadata.integer_or(trained, context, 1, kMost) : context},
      {"attention_factor",
       model.metadata.number_or(model.key("rope.scaling.attn_factor"), 1.0, 1e-6, 1e6)}};
  return true;
}

// Sets the base and the scaling of rope. A factor without a type means linear scaling.
void set_rope(const GgufModel& model, Json& config) {
  const JsonFields& metadata = model.metadata;
  constexpr double kBase = 10'000.0;  // that of files which state none
  config.emplace("rope_theta", kBase);
  if (set_rope_factors(model, config)) return;
  std::string factor = model.key("rope.scaling.factor");
  const std::string old_factor = model.key("rope.scale_linear");
  if (!metadata.has(factor) && metadata.has(old_factor)) factor = old_factor;
  const double stretch = metadata.number_or(factor, 0.0, 0.0, 1e6);
  const bool stretches = stretch != 0.0 && stretch != 1.0;

  const std::string type = model.key("rope.scaling.type");
  const std::string scaling = metadata.string_or(type, stretches ? "linear" : "none");
  if (scaling != "none" && scaling != "linear" && scaling != "yarn") {
    metadata.refuse(type, "one of none, linear, yarn, or longrope with its factors as tensors");
  }
  const bool latent = metadata.has(model.key("attention.kv_lora_rank"));
  check_gguf_rope_scaling(model, scaling == "yarn", latent);
  if (scaling == "none") return;
  Json rope = {{"rope_type", scaling}, {"factor", metadata.number(factor, 1e-6, 1e6)}};
  if (scaling == "yarn") model.copy(kGgufYarnFields, rope);
  // Converters write a tenth of mscale_all_dim, and leave out mscale, which equals it.
  const std::string sharpening = model.key("rope.scaling.yarn_log_multiplier");
  if (latent && metadata.has(sharpening)) {
    rope["mscale"] = rope["mscale_all_dim"] = 10.0 * metadata.number(sharpening, 0.0, 1e5);
  }
  config.emplace("rope_scaling", std::move(rope));
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

void GgufModel::copy(std::span<const GgufField> fields, Json& config) const {
  for (const GgufField& field : fields) {
    if (const Json* value = metadata.find(key(field.key))) config.emplace(field.field, *value);
  }
}

double GgufModel::factor(std::string_view name, double usual) const {
  const double stated = metadata.number_or(key(name), 0.0, -1e9, 1e9);
  return stated == 0.0 ? usual : stated;
}

int64_t GgufModel::further_layers() const {
  return metadata.integer_or(key("nextn_predict_layers"), 0, 0, kMaxLayers);
}

JsonFields GgufModel::fields(const Json& config) const {
  return {config, path_in_quotes(tensors.folder()) + ", metadata as fields of a config.json"};
}

ModelDescription read_gguf_description(const TensorSource& source) {
  const std::string what = path_in_quotes(source.folder());
  const GgufFile file = read_gguf(*source.file(0), what);
  const JsonFields metadata(file.metadata, what, "metadata");
  const Family& family = family_of(metadata);
  const std::string_view architecture = family.gguf.architecture;
  metadata.integer(fmt::format("{}.expert_count", architecture), 1, INT64_MAX);

  Json config = {{"norm_topk_prob", family.gguf.renormalises},
                 {"eos_token_id", end_tokens(metadata)}};
  const GgufModel model{metadata, architecture, source};
  model.copy(kGgufFields, config);
  drop_unread_fields(model, config);
  set_rope(model, config);
  if (const Json* begin = metadata.find("tokenizer.ggml.bos_token_id")) {
    config["bos_token_id"] = *begin;
  }
  set_from_tensors(source, config);
  if (family.gguf.set_fields != nullptr) family.gguf.set_fields(model, config);

  ModelDescription description = family.describe(model.fields(config));
  description.family = family.model_type;
  description.rope.interleaved = family.gguf.neighbours_rotate;
  description.rope.truncate = family.gguf.truncates_yarn;
  set_latent_from_tensors(source, description);
  check_gguf_metadata(model, description);
  const auto add_names = [&](std::span<const TensorPattern> names) {
    description.tensor_names.insert(description.tensor_names.end(), names.begin(), names.end());
  };
  add_names(family.gguf.tensor_names);
  add_names(kGgufTensors);
  add_names(has_merged_experts(source, description) ? std::span(kMergedExperts)
                                                    : std::span(kSingleExperts));
  refuse_unread_tensors(model, description);
  return description;
}

}  // namespace klotski
