#pragma once

// One entry a model family: how its config.json becomes a description, and the names of its
// tensors. This folder is the only place where a model's name may be tested.

#include <array>
#include <span>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "model/description.h"
#include "weights/tensor_source.h"

namespace klotski {

// A key of GGUF metadata, after the architecture and a dot, and the field of a config.json that has
// its value.
struct GgufField {
  std::string_view key;
  std::string_view field;
};

// A model's GGUF files, as its family reads them.
struct GgufModel {
  const JsonFields& metadata;
  std::string_view architecture;  // value of general.architecture
  const TensorSource& tensors;

  // Name of a key of the architecture.
  std::string key(std::string_view name) const { return fmt::format("{}.{}", architecture, name); }
  // Copies the values that are stated to fields that are not yet set.
  void copy(std::span<const GgufField> fields, Json& config) const;
  // A factor; `usual` where it is not stated, or stated as 0.
  double factor(std::string_view name, double usual) const;
  // Layers at the end that predict further tokens, which this program does not compute.
  int64_t further_layers() const;
  bool has_tensor(std::string_view name) const { return tensors.find(name) != nullptr; }
  // The fields of a config.json that the metadata became, for messages of this file.
  JsonFields fields(const Json& config) const;
};

// A family in GGUF files, whose metadata become fields of a config.json (families/gguf.cpp).
struct GgufFamily {
  std::string_view architecture;  // value of general.architecture
  // Whether the converter has put the rows of queries and keys in another order, so that rope turns
  // neighbouring numbers of a head.
  bool neighbours_rotate = false;
  // Whether weights of a token's experts are renormalised, which metadata do not say.
  bool renormalises = false;
  // Whether yarn's bounds are whole dimensions, which metadata do not say.
  bool truncates_yarn = true;
  std::span<const TensorPattern> tensor_names = {};  // names that differ from other architectures'
  // The function that makes weights of router scores, by which families of one architecture differ.
  ScoreFunction score = ScoreFunction::softmax;
  // Sets the fields that other families do not have, or call otherwise; null: there are none. The
  // fields that most families have are set before.
  void (*set_fields)(const GgufModel& model, Json& config) = nullptr;
};

struct Family {
  std::string_view model_type;  // value of config.json's field
  ModelDescription (*describe)(const JsonFields& config);
  std::span<const TensorPattern> tensor_names;  // only names that differ from kDecoderTensors
  GgufFamily gguf;
  // Makes a description compute as this version of transformers does, where that has a fault; says
  // in one sentence what it computes, or nothing.
  std::string_view (*repeat_fault)(ModelDescription& model,
                                   std::string_view transformers_version) = nullptr;
};

// Tensor names of most decoders in the Hugging Face layout; a family's own names come before.
inline constexpr std::array kDecoderTensors = {
    TensorPattern{Role::embedding, "model.embed_tokens.weight"},
    TensorPattern{Role::final_norm, "model.norm.weight"},
    TensorPattern{Role::final_norm_bias, "model.norm.bias"},
    TensorPattern{Role::output, "lm_head.weight"},
    TensorPattern{Role::output_bias, "lm_head.bias"},
    TensorPattern{Role::attention_norm, "model.layers.{layer}.input_layernorm.weight"},
    TensorPattern{Role::attention_norm_bias, "model.layers.{layer}.input_layernorm.bias"},
    TensorPattern{Role::query, "model.layers.{layer}.self_attn.q_proj.weight"},
    TensorPattern{Role::query_bias, "model.layers.{layer}.self_attn.q_proj.bias"},
    TensorPattern{Role::key, "model.layers.{layer}.self_attn.k_proj.weight"},
    TensorPattern{Role::key_bias, "model.layers.{layer}.self_attn.k_proj.bias"},
    TensorPattern{Role::value, "model.layers.{layer}.self_attn.v_proj.weight"},
    TensorPattern{Role::value_bias, "model.layers.{layer}.self_attn.v_proj.bias"},
    TensorPattern{Role::query_norm, "model.layers.{layer}.self_attn.q_norm.weight"},
    TensorPattern{Role::key_norm, "model.layers.{layer}.self_attn.k_norm.weight"},
    TensorPattern{Role::sinks, "model.layers.{layer}.self_attn.sinks"},
    TensorPattern{Role::attention_output, "model.layers.{layer}.self_attn.o_proj.weight"},
    TensorPattern{Role::attention_output_bias, "model.layers.{layer}.self_attn.o_proj.bias"},
    TensorPattern{Role::feed_forward_norm, "model.layers.{layer}.post_attention_layernorm.weight"},
    TensorPattern{Role::feed_forward_norm_bias,
                  "model.layers.{layer}.post_attention_layernorm.bias"},
    TensorPattern{Role::router, "model.layers.{layer}.mlp.gate.weight"},
    TensorPattern{Role::expert_gate, "model.layers.{layer}.mlp.experts.{expert}.gate_proj.weight"},
    TensorPattern{Role::expert_up, "model.layers.{layer}.mlp.experts.{expert}.up_proj.weight"},
    TensorPattern{Role::expert_down, "model.layers.{layer}.mlp.experts.{expert}.down_proj.weight"},
    TensorPattern{Role::dense_gate, "model.layers.{layer}.mlp.gate_proj.weight"},
    TensorPattern{Role::dense_up, "model.layers.{layer}.mlp.up_proj.weight"},
    TensorPattern{Role::dense_down, "model.layers.{layer}.mlp.down_proj.weight"},
};

// Tensor names of routed parts in the layout that Mixtral began, for families that keep it.
inline constexpr std::array kSparseBlockTensors = {
    TensorPattern{Role::router, "model.layers.{layer}.block_sparse_moe.gate.weight"},
    TensorPattern{Role::selection_bias,
                  "model.layers.{layer}.block_sparse_moe.e_score_correction_bias"},
    TensorPattern{Role::expert_gate,
                  "model.layers.{layer}.block_sparse_moe.experts.{expert}.w1.weight"},
    TensorPattern{Role::expert_up,
                  "model.layers.{layer}.block_sparse_moe.experts.{expert}.w3.weight"},
    TensorPattern{Role::expert_down,
                  "model.layers.{layer}.block_sparse_moe.experts.{expert}.w2.weight"},
};

// A norm of GGUF files that is named by what it follows.
inline constexpr std::array kGgufPostAttentionNorm = {
    TensorPattern{Role::feed_forward_norm, "blk.{layer}.post_attention_norm.weight"},
};

std::span<const Family> families();

extern const Family kArctic;
extern const Family kDbrx;
extern const Family kDeepseekV2;
extern const Family kDeepseekV3;
extern const Family kErnieMoe;
extern const Family kGlm4Moe;
extern const Family kGptOss;
extern const Family kGraniteMoe;
extern const Family kHunyuanMoe;
extern const Family kKimiK2;
extern const Family kLlama4Text;
extern const Family kMinimaxM2;
extern const Family kMixtral;
extern const Family kNllbMoe;
extern const Family kOlmoe;
extern const Family kPhiMoe;
extern const Family kQwen2Moe;
extern const Family kQwen3Moe;
extern const Family kQwen3Next;
extern const Family kSwitch;

// A field that is one token id or a list of them; absent gives none.
std::vector<TokenId> token_ids(const JsonFields& config, std::string_view key, int64_t vocabulary);

}  // namespace klotski
