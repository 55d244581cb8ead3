#include "model/families/shapes.h"

#include <algorithm>
#include <array>
#include <map>

#include "base/numbers.h"
#include "model/config.h"

namespace klotski {

namespace {

struct NamedShape {
  std::string_view name;
  std::string_view config;  // published fields, without those of training and token ids
};

constexpr std::array kShapes = {
    NamedShape{"mixtral-8x7b", R"({
      "architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "hidden_act": "silu",
      "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
      "num_attention_heads": 32, "num_key_value_heads": 8, "num_local_experts": 8,
      "num_experts_per_tok": 2, "max_position_embeddings": 32768, "rms_norm_eps": 1e-05,
      "rope_theta": 1000000.0, "sliding_window": null, "tie_word_embeddings": false,
      "vocab_size": 32000})"},
    NamedShape{"mixtral-8x22b", R"({
      "architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "hidden_act": "silu",
      "hidden_size": 6144, "intermediate_size": 16384, "num_hidden_layers": 56,
      "num_attention_heads": 48, "num_key_value_heads": 8, "num_local_experts": 8,
      "num_experts_per_tok": 2, "max_position_embeddings": 65536, "rms_norm_eps": 1e-05,
      "rope_theta": 1000000.0, "sliding_window": null, "tie_word_embeddings": false,
      "vocab_size": 32000})"},
    NamedShape{"qwen3-30b-a3b", R"({
      "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "hidden_act": "silu",
      "attention_bias": false, "decoder_sparse_step": 1, "mlp_only_layers": [],
      "hidden_size": 2048, "intermediate_size": 6144, "moe_intermediate_size": 768,
      "num_hidden_layers": 48, "num_attention_heads": 32, "num_key_value_heads": 4,
      "head_dim": 128, "num_experts": 128, "num_experts_per_tok": 8, "norm_topk_prob": true,
      "max_position_embeddings": 40960, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0,
      "use_sliding_window": false, "sliding_window": null, "tie_word_embeddings": false,
      "vocab_size": 151936})"},
    NamedShape{"qwen3-235b-a22b", R"({
      "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "hidden_act": "silu",
      "attention_bias": false, "decoder_sparse_step": 1, "mlp_only_layers": [],
      "hidden_size": 4096, "intermediate_size": 12288, "moe_intermediate_size": 1536,
      "num_hidden_layers": 94, "num_attention_heads": 64, "num_key_value_heads": 4,
      "head_dim": 128, "num_experts": 128, "num_experts_per_tok": 8, "norm_topk_prob": true,
      "max_position_embeddings": 40960, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0,
      "use_sliding_window": false, "sliding_window": null, "tie_word_embeddings": false,
      "vocab_size": 151936})"},
    NamedShape{"qwen3-next-80b-a3b", R"({
      "architectures": ["Qwen3NextForCausalLM"], "model_type": "qwen3_next", "hidden_act": "silu",
      "attention_bias": false, "decoder_sparse_step": 1, "mlp_only_layers": [],
      "hidden_size": 2048, "intermediate_size": 5120, "moe_intermediate_size": 512,
      "shared_expert_intermediate_size": 512, "num_hidden_layers": 48,
      "full_attention_interval": 4, "num_attention_heads": 16, "num_key_value_heads": 2,
      "head_dim": 256, "partial_rotary_factor": 0.25, "linear_conv_kernel_dim": 4,
      "linear_key_head_dim": 128, "linear_value_head_dim": 128, "linear_num_key_heads": 16,
      "linear_num_value_heads": 32, "num_experts": 512, "num_experts_per_tok": 10,
      "norm_topk_prob": true, "max_position_embeddings": 262144, "rms_norm_eps": 1e-06,
      "rope_theta": 10000000, "rope_scaling": null, "tie_word_embeddings": false,
      "vocab_size": 151936})"},
    NamedShape{"qwen1.5-moe-a2.7b", R"({
      "architectures": ["Qwen2MoeForCausalLM"], "model_type": "qwen2_moe", "hidden_act": "silu",
      "decoder_sparse_step": 1, "hidden_size": 2048, "intermediate_size": 5632,
      "moe_intermediate_size": 1408, "shared_expert_intermediate_size": 5632,
      "num_hidden_layers": 24, "num_attention_heads": 16, "num_key_value_heads": 16,
      "num_experts": 60, "num_experts_per_tok": 4, "norm_topk_prob": false,
      "max_position_embeddings": 8192, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0,
      "use_sliding_window": false, "tie_word_embeddings": false, "vocab_size": 151936})"},
    NamedShape{"olmoe-1b-7b", R"({
      "architectures": ["OlmoeForCausalLM"], "model_type": "olmoe", "hidden_act": "silu",
      "attention_bias": false, "clip_qkv": null, "hidden_size": 2048, "intermediate_size": 1024,
      "num_hidden_layers": 16, "num_attention_heads": 16, "num_key_value_heads": 16,
      "num_experts": 64, "num_experts_per_tok": 8, "norm_topk_prob": false,
      "max_position_embeddings": 4096, "rms_norm_eps": 1e-05, "rope_theta": 10000.0,
      "tie_word_embeddings": false, "vocab_size": 50304})"},
    NamedShape{"gpt-oss-20b", R"({
      "architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss", "hidden_act": "silu",
      "attention_bias": true, "hidden_size": 2880, "intermediate_size": 2880,
      "num_hidden_layers": 24, "num_attention_heads": 64, "num_key_value_heads": 8,
      "head_dim": 64, "num_local_experts": 32, "num_experts_per_tok": 4, "swiglu_limit": 7.0,
      "sliding_window": 128, "max_position_embeddings": 131072, "rms_norm_eps": 1e-05,
      "rope_theta": 150000, "rope_scaling": {"rope_type": "yarn", "factor": 32.0,
      "original_max_position_embeddings": 4096, "beta_fast": 32.0, "beta_slow": 1.0,
      "truncate": false}, "tie_word_embeddings": false, "vocab_size": 201088})"},
    NamedShape{"gpt-oss-120b", R"({
      "architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss", "hidden_act": "silu",
      "attention_bias": true, "hidden_size": 2880, "intermediate_size": 2880,
      "num_hidden_layers": 36, "num_attention_heads": 64, "num_key_value_heads": 8,
      "head_dim": 64, "num_local_experts": 128, "num_experts_per_tok": 4, "swiglu_limit": 7.0,
      "sliding_window": 128, "max_position_embeddings": 131072, "rms_norm_eps": 1e-05,
      "rope_theta": 150000, "rope_scaling": {"rope_type": "yarn", "factor": 32.0,
      "original_max_position_embeddings": 4096, "beta_fast": 32.0, "beta_slow": 1.0,
      "truncate": false}, "tie_word_embeddings": false, "vocab_size": 201088})"},
    NamedShape{"deepseek-v2-lite", R"({
      "architectures": ["DeepseekV2ForCausalLM"], "model_type": "deepseek_v2", "hidden_act": "silu",
      "attention_bias": false, "first_k_dense_replace": 1, "hidden_size": 2048,
      "intermediate_size": 10944, "kv_lora_rank": 512, "max_position_embeddings": 163840,
      "moe_intermediate_size": 1408, "moe_layer_freq": 1, "n_group": 1, "n_routed_experts": 64,
      "n_shared_experts": 2, "norm_topk_prob": false, "num_attention_heads": 16,
      "num_experts_per_tok": 6, "num_hidden_layers": 27, "q_lora_rank": null,
      "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "rms_norm_eps": 1e-06,
      "rope_scaling": {"beta_fast": 32, "beta_slow": 1, "factor": 40, "mscale": 0.707,
      "mscale_all_dim": 0.707, "original_max_position_embeddings": 4096, "type": "yarn"},
      "rope_theta": 10000, "routed_scaling_factor": 1.0, "scoring_func": "softmax",
      "tie_word_embeddings": false, "topk_group": 1, "topk_method": "greedy", "v_head_dim": 128,
      "vocab_size": 102400})"},
    NamedShape{"deepseek-v3", R"({
      "architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3", "hidden_act": "silu",
      "attention_bias": false, "first_k_dense_replace": 3, "hidden_size": 7168,
      "intermediate_size": 18432, "kv_lora_rank": 512, "max_position_embeddings": 163840,
      "moe_intermediate_size": 2048, "moe_layer_freq": 1, "n_group": 8, "n_routed_experts": 256,
      "n_shared_experts": 1, "norm_topk_prob": true, "num_attention_heads": 128,
      "num_experts_per_tok": 8, "num_hidden_layers": 61, "q_lora_rank": 1536,
      "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "rms_norm_eps": 1e-06,
      "rope_scaling": {"beta_fast": 32, "beta_slow": 1, "factor": 40, "mscale": 1.0,
      "mscale_all_dim": 1.0, "original_max_position_embeddings": 4096, "type": "yarn"},
      "rope_theta": 10000, "routed_scaling_factor": 2.5, "scoring_func": "sigmoid",
      "tie_word_embeddings": false, "topk_group": 4, "topk_method": "noaux_tc",
      "v_head_dim": 128, "vocab_size": 129280})"},
    NamedShape{"glm-4.5-air", R"({
      "architectures": ["Glm4MoeForCausalLM"], "model_type": "glm4_moe", "hidden_act": "silu",
      "attention_bias": true, "use_qk_norm": false, "partial_rotary_factor": 0.5,
      "hidden_size": 4096, "intermediate_size": 10944, "moe_intermediate_size": 1408,
      "num_hidden_layers": 46, "num_attention_heads": 96, "num_key_value_heads": 8,
      "head_dim": 128, "n_routed_experts": 128, "n_shared_experts": 1,
      "num_experts_per_tok": 8, "first_k_dense_replace": 1, "n_group": 1, "topk_group": 1,
      "norm_topk_prob": true, "routed_scaling_factor": 1.0, "max_position_embeddings": 131072,
      "rms_norm_eps": 1e-05, "rope_theta": 1000000, "rope_scaling": null,
      "tie_word_embeddings": false, "vocab_size": 151552})"},
    NamedShape{"minimax-m2", R"({
      "architectures": ["MiniMaxM2ForCausalLM"], "model_type": "minimax_m2", "hidden_act": "silu",
      "hidden_size": 3072, "intermediate_size": 1536, "num_hidden_layers": 62,
      "num_attention_heads": 48, "num_key_value_heads": 8, "head_dim": 128, "rotary_dim": 64,
      "num_local_experts": 256, "num_experts_per_tok": 8, "scoring_func": "sigmoid",
      "use_routing_bias": true, "use_qk_norm": true, "qk_norm_type": "per_layer",
      "shared_intermediate_size": 0, "max_position_embeddings": 196608, "rms_norm_eps": 1e-06,
      "rope_theta": 5000000, "tie_word_embeddings": false, "vocab_size": 200064})"},
    NamedShape{"dbrx", R"({
      "architectures": ["DbrxForCausalLM"], "model_type": "dbrx",
      "attn_config": {"clip_qkv": 8, "kv_n_heads": 8, "rope_theta": 500000},
      "ffn_config": {"ffn_hidden_size": 10752, "moe_num_experts": 16, "moe_top_k": 4,
                     "moe_normalize_expert_weights": 1},
      "d_model": 6144, "max_seq_len": 32768, "n_heads": 48, "n_layers": 40,
      "tie_word_embeddings": false, "vocab_size": 100352})"},
    NamedShape{"arctic", R"({
      "architectures": ["ArcticForCausalLM"], "model_type": "arctic", "hidden_act": "silu",
      "hidden_size": 7168, "intermediate_size": 4864, "num_hidden_layers": 35,
      "num_attention_heads": 56, "num_key_value_heads": 8, "num_local_experts": 128,
      "num_experts_per_tok": 2, "moe_layer_frequency": 1, "parallel_attn_mlp_res": true,
      "use_residual": true, "max_position_embeddings": 4096, "rms_norm_eps": 1e-05,
      "rope_theta": 10000.0, "sliding_window": null, "tie_word_embeddings": false,
      "vocab_size": 32000})"},
    NamedShape{"switch-base-128", R"({
      "architectures": ["SwitchTransformersForConditionalGeneration"],
      "model_type": "switch_transformers", "is_encoder_decoder": true, "dense_act_fn": "relu",
      "d_model": 768, "d_ff": 3072, "d_kv": 64, "num_heads": 12, "num_layers": 12,
      "num_decoder_layers": 12, "num_experts": 128, "encoder_sparse_step": 2,
      "decoder_sparse_step": 2, "expert_capacity": 64, "layer_norm_epsilon": 1e-06,
      "relative_attention_num_buckets": 32, "relative_attention_max_distance": 128,
      "decoder_start_token_id": 0, "tie_word_embeddings": true, "vocab_size": 32128})"},
    NamedShape{"nllb-moe-54b", R"({
      "architectures": ["NllbMoeForConditionalGeneration"], "model_type": "nllb-moe",
      "is_encoder_decoder": true, "activation_function": "relu", "d_model": 2048,
      "encoder_layers": 24, "decoder_layers": 24, "encoder_ffn_dim": 8192,
      "decoder_ffn_dim": 8192, "encoder_attention_heads": 16, "decoder_attention_heads": 16,
      "encoder_sparse_step": 4, "decoder_sparse_step": 4, "num_experts": 128,
      "moe_eval_capacity_token_fraction": 1.0, "moe_token_dropout": 0.2,
      "second_expert_policy": "all", "max_position_embeddings": 1024, "scale_embedding": true,
      "pad_token_id": 1, "decoder_start_token_id": 2, "tie_word_embeddings": true,
      "vocab_size": 256206})"},
};

// The shape that fills in the fields that a shape by hand leaves out.
constexpr const NamedShape& kByHand = kShapes[0];

constexpr std::array<std::string_view, 10> kFields = {
    "L", "H", "F", "E", "K", "heads", "kv_heads", "head_dim", "vocab", "shared"};
constexpr int64_t kMaxValue = 1 << 24;

using Values = std::map<std::string_view, int64_t>;

[[noreturn]] void refuse(std::string_view shape, std::string_view why) {
  fail(ErrorKind::usage, "shape {}: {}; expected {}", in_quotes(shape), why, shape_syntax());
}

// "L=18,H=2048": every field once, known, a positive number.
Values parse_fields(std::string_view shape, std::string_view list) {
  Values values;
  for (bool more = true; more;) {
    const size_t comma = list.find(',');
    const std::string_view item = list.substr(0, comma);
    more = comma != std::string_view::npos;
    if (more) list.remove_prefix(comma + 1);
    const size_t equals = std::min(item.find('='), item.size());
    const auto field = std::find(kFields.begin(), kFields.end(), item.substr(0, equals));
    const auto value = parse_int(item.substr(std::min(equals + 1, item.size())));
    if (field == kFields.end()) refuse(shape, fmt::format("unknown field {}", in_quotes(item)));
    if (!value || *value < 1 || *value > kMaxValue) {
      refuse(shape, fmt::format("{} is no number from 1 to {}", in_quotes(item), kMaxValue));
    }
    if (!values.emplace(*field, *value).second)
      refuse(shape, fmt::format("{} is given twice", *field));
  }
  return values;
}

// Heads of the usual 128 numbers, or one of all the width where that is less; four query heads
// share keys and values where they can.
void add_default_heads(Values& values, int64_t hidden) {
  const int64_t head_dim =
      values.try_emplace("head_dim", std::min<int64_t>(128, hidden)).first->second;
  const int64_t heads =
      values.try_emplace("heads", std::max<int64_t>(1, hidden / head_dim)).first->second;
  int64_t kv_heads = std::max<int64_t>(1, heads / 4);
  while (heads % kv_heads != 0) --kv_heads;
  values.try_emplace("kv_heads", kv_heads);
}

// Heads that share a latent vector have no keys, values and widths of their own.
bool has_latent_attention(const OrderedJson& config) { return config.contains("kv_lora_rank"); }
bool has_encoder(const OrderedJson& config) { return config.contains("is_encoder_decoder"); }

// Changes a field of the encoder and of the decoder.
void change_both(OrderedJson& config, std::string_view shape, std::string_view field,
                 int64_t value) {
  static const std::map<std::string_view, std::vector<std::string_view>> kNames = {
      {"L", {"num_layers", "num_decoder_layers", "encoder_layers", "decoder_layers"}},
      {"H", {"d_model"}},
      {"F", {"d_ff", "encoder_ffn_dim", "decoder_ffn_dim"}},
      {"E", {"num_experts"}},
      {"heads", {"num_heads", "encoder_attention_heads", "decoder_attention_heads"}},
      {"head_dim", {"d_kv"}},
      {"vocab", {"vocab_size"}},
  };
  bool known = false;
  const auto names = kNames.find(field);
  for (size_t i = 0; names != kNames.end() && i < names->second.size(); ++i) {
    const std::string name(names->second[i]);
    if (!config.contains(name)) continue;
    config[name] = value;
    known = true;
  }
  if (!known) refuse(shape, fmt::format("this architecture has no field {}", field));
}

void change(OrderedJson& config, std::string_view shape, const Values& values) {
  using Pointer = OrderedJson::json_pointer;
  // Names that architectures have for a field; the last counts where a config has none of them.
  static const std::map<std::string_view, std::vector<Pointer>> kKeys = {
      {"L", {Pointer("/n_layers"), Pointer("/num_hidden_layers")}},
      {"H", {Pointer("/d_model"), Pointer("/hidden_size")}},
      {"F",
       {Pointer("/moe_intermediate_size"), Pointer("/ffn_config/ffn_hidden_size"),
        Pointer("/intermediate_size")}},
      {"E",
       {Pointer("/num_local_experts"), Pointer("/n_routed_experts"),
        Pointer("/ffn_config/moe_num_experts"), Pointer("/num_experts")}},
      {"K", {Pointer("/ffn_config/moe_top_k"), Pointer("/num_experts_per_tok")}},
      {"heads", {Pointer("/n_heads"), Pointer("/num_attention_heads")}},
      {"kv_heads", {Pointer("/attn_config/kv_n_heads"), Pointer("/num_key_value_heads")}},
      {"head_dim", {Pointer("/head_dim")}},
      {"vocab", {Pointer("/vocab_size")}},
      {"shared", {Pointer("/shared_expert_intermediate_size")}},
  };
  for (const auto& [field, value] : values) {
    if (has_encoder(config)) {
      change_both(config, shape, field, value);
      continue;
    }
    const std::vector<Pointer>& names = kKeys.at(field);
    const auto present = std::find_if(names.begin(), names.end(),
                                      [&](const Pointer& name) { return config.contains(name); });
    if (field == "shared" && present == names.end()) {
      refuse(shape, "this architecture has no shared expert of a width of its own");
    }
    if (has_latent_attention(config) && (field == "kv_heads" || field == "head_dim")) {
      refuse(shape, fmt::format("this architecture has no field {}", field));
    }
    config[present == names.end() ? names.back() : *present] = value;
  }
}

const NamedShape* find_shape(std::string_view name) {
  for (const NamedShape& shape : kShapes) {
    if (shape.name == name) return &shape;
  }
  return nullptr;
}

}  // namespace

std::vector<std::string_view> shape_names() {
  std::vector<std::string_view> names;
  for (const NamedShape& shape : kShapes) names.push_back(shape.name);
  return names;
}

std::string_view shape_syntax() {
  static const std::string kText = [] {
    std::string names;
    for (const std::string_view name : shape_names()) names += std::string(name) + ", ";
    return names +
           "or L=,H=,F=,E=,K= (layers, hidden, expert width, experts, experts a token) and "
           "optionally heads=,kv_heads=,head_dim=,vocab=,shared=, alone or after a name; with "
           ",compact at the end, expert weights of bf16 take 12 bits each; with ,mxfp4 (in memory "
           "only) they are random numbers of 4.25 bits";
  }();
  return kText;
}

std::optional<std::string_view> take_format(std::string_view* shape) {
  const size_t comma = shape->rfind(',');
  if (comma == std::string_view::npos) return {};
  const std::string_view word = shape->substr(comma + 1);
  if (word.empty() || word.find('=') != std::string_view::npos) return {};
  shape->remove_suffix(shape->size() - comma);
  return word;
}

OrderedJson shape_config(std::string_view shape, int64_t tokens) {
  const std::string_view name = shape.substr(0, shape.find(','));
  const NamedShape* named = find_shape(name);
  if (named == nullptr && name.find('=') == std::string_view::npos) refuse(shape, "no such shape");
  Values values;
  if (named == nullptr) {
    values = parse_fields(shape, shape);
  } else if (name.size() < shape.size()) {
    values = parse_fields(shape, shape.substr(name.size() + 1));
  }
  if (named == nullptr) {
    for (const std::string_view field : {"L", "H", "F", "E", "K"}) {
      if (values.count(field) == 0) refuse(shape, fmt::format("{} is missing", field));
    }
    values.try_emplace("vocab", tokens);
  }
  OrderedJson config = parse_ordered_json((named == nullptr ? kByHand : *named).config, "shape");
  if (values.count("H") > 0 && !has_latent_attention(config) && !has_encoder(config)) {
    add_default_heads(values, values.at("H"));
  }
  change(config, shape, values);
  try {
    parse_config(config.dump(), "its config.json");
  } catch (const Error& error) {
    fail(ErrorKind::usage, "shape {}: {}", in_quotes(shape), error.what());
  }
  return config;
}

}  // namespace klotski
