#pragma once

// GGUF files made of the safetensors of a test model, as converters write them: vectors and routers
// in F32, all experts of a layer in one tensor, rows of queries and keys of the llama architecture
// in pairs that rotate together.

#include <array>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "tensor/half.h"
#include "weights/checkpoint.h"
#include "weights/testing.h"
#include "weights/testing_gguf.h"

namespace klotski::testing_gguf {

struct StoredMatrix {
  Shape shape;
  DType dtype = DType::BF16;
  std::string bytes;
};

// How a model is written.
struct GgufChoice {
  bool merged = true;  // false: one tensor an expert
  bool apart = false;  // W_uk and W_uv of latent attention as tensors of their own
  int shards = 1;
  // Makes another matrix of each that is neither a vector nor a router; null: these stay BF16.
  std::function<StoredMatrix(const StoredMatrix&)> pack = nullptr;
};

inline std::string gguf_architecture(const Json& config) {
  const std::string type = config["model_type"];
  return type == "mixtral"                ? "llama"
         : type == "qwen2_moe"            ? "qwen2moe"
         : type == "qwen3_moe"            ? "qwen3moe"
         : type == "gpt_oss"              ? "gpt-oss"
         : type.starts_with("deepseek_v") ? "deepseek2"
                                          : type;
}

// The name of a tensor outside of the experts.
inline std::string gguf_name(std::string name) {
  static const std::vector<std::pair<std::string, std::string>> kReplacements = {
      {"model.embed_tokens.", "token_embd."},
      {"model.norm.", "output_norm."},
      {"lm_head.", "output."},
      {"model.layers.", "blk."},
      {"input_layernorm", "attn_norm"},
      {"post_attention_layernorm", "ffn_norm"},
      {"self_attn.q_proj", "attn_q"},
      {"self_attn.k_proj", "attn_k"},
      {"self_attn.v_proj", "attn_v"},
      {"self_attn.o_proj", "attn_output"},
      {"self_attn.q_a_proj", "attn_q_a"},
      {"self_attn.q_a_layernorm", "attn_q_a_norm"},
      {"self_attn.q_b_proj", "attn_q_b"},
      {"self_attn.kv_a_proj_with_mqa", "attn_kv_a_mqa"},
      {"self_attn.kv_a_layernorm", "attn_kv_a_norm"},
      {"self_attn.kv_b_proj", "attn_kv_b"},
      {"mlp.gate.e_score_correction_bias", "exp_probs_b.bias"},
      {"self_attn.q_norm", "attn_q_norm"},
      {"self_attn.k_norm", "attn_k_norm"},
      {"block_sparse_moe.gate.", "ffn_gate_inp."},
      {"mlp.gate.", "ffn_gate_inp."},
      {"mlp.router.", "ffn_gate_inp."},
      {"self_attn.sinks", "attn_sinks.weight"},
      {"mlp.shared_expert.gate_proj", "ffn_gate_shexp"},
      {"mlp.shared_expert.up_proj", "ffn_up_shexp"},
      {"mlp.shared_expert.down_proj", "ffn_down_shexp"},
      {"mlp.shared_expert_gate", "ffn_gate_inp_shexp"},
      {"mlp.shared_experts.gate_proj", "ffn_gate_shexp"},
      {"mlp.shared_experts.up_proj", "ffn_up_shexp"},
      {"mlp.shared_experts.down_proj", "ffn_down_shexp"},
      {"mlp.gate_proj", "ffn_gate"},
      {"mlp.up_proj", "ffn_up"},
      {"mlp.down_proj", "ffn_down"}};
  for (const auto& [from, to] : kReplacements) {
    const size_t at = name.find(from);
    if (at != std::string::npos) name.replace(at, from.size(), to);
  }
  return name;
}

inline StoredMatrix as_floats(const StoredMatrix& matrix) {
  StoredMatrix floats{matrix.shape, DType::F32, ""};
  for (size_t i = 0; i < matrix.bytes.size(); i += 2) {
    uint16_t bits = 0;
    std::memcpy(&bits, matrix.bytes.data() + i, sizeof(bits));
    floats.bytes += bytes_of(bf16_to_float(bits));
  }
  return floats;
}

// Rows i and i + half of each head become neighbours.
inline StoredMatrix paired_rows(const StoredMatrix& matrix, int64_t heads) {
  const auto rows = static_cast<size_t>(matrix.shape[0]);
  const size_t head = rows / static_cast<size_t>(heads);
  const size_t row_bytes = matrix.bytes.size() / rows;
  StoredMatrix paired{matrix.shape, matrix.dtype, ""};
  for (size_t row = 0; row < rows; ++row) {
    const size_t in_head = row % head;
    const size_t from = row - in_head + in_head / 2 + in_head % 2 * (head / 2);
    paired.bytes += matrix.bytes.substr(from * row_bytes, row_bytes);
  }
  return paired;
}

// The tensors that a fused tensor of gpt-oss becomes, by what follows "blk.L.ffn_": gate and up
// apart, matrices in rows.
inline std::map<std::string, StoredMatrix> divided(const std::string& name,
                                                   const StoredMatrix& fused) {
  const bool bias = name.ends_with("_bias");
  const bool pair = name.find("gate_up") != std::string::npos;
  const auto experts = static_cast<size_t>(fused.shape[0]);
  const auto columns = static_cast<size_t>(bias ? 1 : fused.shape[1]);
  const auto rows = static_cast<size_t>(fused.shape.back());
  std::map<std::string, StoredMatrix> parts;
  for (size_t which = 0; which < (pair ? 2u : 1u); ++which) {
    const size_t step = pair ? 2 : 1;
    StoredMatrix part{{fused.shape[0], static_cast<int64_t>(rows / step)}, fused.dtype, ""};
    if (!bias) part.shape.push_back(static_cast<int64_t>(columns));
    for (size_t expert = 0; expert < experts; ++expert) {
      for (size_t row = which; row < rows; row += step) {
        for (size_t column = 0; column < columns; ++column) {
          part.bytes += fused.bytes.substr(2 * ((expert * columns + column) * rows + row), 2);
        }
      }
    }
    const std::string stem = !pair ? "down" : which == 0 ? "gate" : "up";
    parts.emplace(stem + "_exps." + (bias ? "bias" : "weight"), bias ? as_floats(part) : part);
  }
  return parts;
}

// Metadata of latent attention and its routers; `apart`: of files with W_uk and W_uv apart.
inline void add_latent_metadata(const Json& config, bool apart, std::vector<std::string>& pairs) {
  const auto number = [&](const char* key, uint32_t value) {
    pairs.push_back(u32_pair(std::string("deepseek2.") + key, value));
  };
  const auto field = [&](const char* name) { return config[name].get<uint32_t>(); };
  const uint32_t rotated = field("qk_rope_head_dim");
  const uint32_t rank = field("kv_lora_rank");
  number("attention.kv_lora_rank", rank);
  if (!config["q_lora_rank"].is_null()) number("attention.q_lora_rank", field("q_lora_rank"));
  number("rope.dimension_count", rotated);
  const uint32_t key = field("qk_nope_head_dim") + rotated;
  number("attention.key_length", apart ? rank + rotated : key);
  number("attention.value_length", apart ? rank : field("v_head_dim"));
  if (apart) number("attention.key_length_mla", key);
  if (apart) number("attention.value_length_mla", field("v_head_dim"));
  number("attention.head_count_kv", apart ? 1 : field("num_attention_heads"));
  number("leading_dense_block_count", field("first_k_dense_replace"));
  number("expert_count", field("n_routed_experts"));
  number("expert_shared_count", field("n_shared_experts"));
  number("expert_group_count", field("n_group"));
  number("expert_group_used_count", field("topk_group"));
  const bool sigmoid = config["model_type"] == "deepseek_v3";
  number("expert_gating_func", sigmoid ? 2 : 1);
  pairs.push_back(f32_pair("deepseek2.expert_weights_scale", config["routed_scaling_factor"]));
  if (config["norm_topk_prob"]) pairs.push_back(bool_pair("deepseek2.expert_weights_norm", true));
}

inline std::vector<std::string> gguf_metadata(const Json& config, bool apart = false) {
  const std::string arch = gguf_architecture(config);
  std::vector<std::string> pairs = {text_pair("general.architecture", arch)};
  const auto number = [&](const char* key, const char* field) {
    const auto found = config.find(field);
    if (found == config.end() || found->is_null()) return;
    pairs.push_back(u32_pair(arch + "." + key, found->get<uint32_t>()));
  };
  number("block_count", "num_hidden_layers");
  number("context_length", "max_position_embeddings");
  number("embedding_length", "hidden_size");
  number("feed_forward_length", "intermediate_size");
  number("expert_feed_forward_length", "moe_intermediate_size");
  number("expert_shared_feed_forward_length", "shared_expert_intermediate_size");
  number("expert_used_count", "num_experts_per_tok");
  number("attention.head_count", "num_attention_heads");
  if (config.contains("kv_lora_rank")) {
    add_latent_metadata(config, apart, pairs);
  } else {
    number("expert_count", config.contains("num_experts") ? "num_experts" : "num_local_experts");
    number("attention.head_count_kv", "num_key_value_heads");
    number("attention.key_length", "head_dim");
  }
  const Json& rope = config["rope_parameters"];
  if (rope["rope_type"] == "yarn") {
    pairs.push_back(text_pair(arch + ".rope.scaling.type", "yarn"));
    pairs.push_back(f32_pair(arch + ".rope.scaling.factor", rope["factor"]));
    pairs.push_back(u32_pair(arch + ".rope.scaling.original_context_length",
                             rope["original_max_position_embeddings"]));
  }
  if (arch == "llama" || arch == "gpt-oss") number("attention.sliding_window", "sliding_window");
  pairs.push_back(f32_pair(arch + ".attention.layer_norm_rms_epsilon", config["rms_norm_eps"]));
  pairs.push_back(f32_pair(arch + ".rope.freq_base", config["rope_parameters"]["rope_theta"]));
  pairs.push_back(u32_pair("tokenizer.ggml.bos_token_id", config["bos_token_id"]));
  pairs.push_back(u32_pair("tokenizer.ggml.eos_token_id", config["eos_token_id"]));
  return pairs;
}

// All tensors of the model under the names of GGUF, one an expert.
inline std::map<std::string, StoredMatrix> gguf_tensors(const Checkpoint& model,
                                                        const Json& config) {
  static const std::map<std::string, std::string> kMatrices = {
      {"w1", "gate"},        {"w3", "up"},      {"w2", "down"},
      {"gate_proj", "gate"}, {"up_proj", "up"}, {"down_proj", "down"}};
  const bool paired = gguf_architecture(config) == "llama";
  std::map<std::string, StoredMatrix> tensors;
  for (const TensorEntry& entry : model.tensors()) {
    StoredMatrix matrix{entry.shape, entry.dtype, std::string(entry.bytes, '\0')};
    model.read(entry, std::as_writable_bytes(std::span(matrix.bytes)));
    const size_t experts = entry.name.find(".experts.");
    std::string name = gguf_name(entry.name);
    const std::string layer_of_name =
        name.starts_with("blk.") ? name.substr(0, name.find('.', 4) + 1) : "";
    if (gguf_architecture(config) == "gpt-oss") {
      const size_t norm = name.find("ffn_norm");
      if (norm != std::string::npos) name.replace(norm, 8, "post_attention_norm");
      if (experts != std::string::npos) {
        for (auto& [part, numbers] : divided(entry.name, matrix)) {
          tensors.emplace(layer_of_name + "ffn_" + part, std::move(numbers));
        }
        continue;
      }
    }
    if (experts != std::string::npos) {
      const std::string rest = entry.name.substr(experts + 9);  // "3.w1.weight"
      const std::string expert = rest.substr(0, rest.find('.'));
      const size_t matrix_at = expert.size() + 1;
      const std::string which = rest.substr(matrix_at, rest.find('.', matrix_at) - matrix_at);
      const std::string layer = entry.name.substr(13, entry.name.find('.', 13) - 13);
      name = "blk." + layer + ".ffn_" + kMatrices.at(which) + "." + expert + ".weight";
    }
    if (paired && name.find("attn_q.") != std::string::npos) {
      matrix = paired_rows(matrix, config["num_attention_heads"]);
    } else if (paired && name.find("attn_k.") != std::string::npos) {
      matrix = paired_rows(matrix, config["num_key_value_heads"]);
    }
    const bool floats = entry.shape.size() == 1 || name.find("ffn_gate_inp") != std::string::npos;
    tensors.emplace(name, floats ? as_floats(matrix) : std::move(matrix));
  }
  return tensors;
}

// Puts W_uk, transposed, and W_uv of a layer's heads into tensors of their own.
inline std::map<std::string, StoredMatrix> with_heads_apart(
    std::map<std::string, StoredMatrix> tensors, const Json& config) {
  const auto heads = config["num_attention_heads"].get<size_t>();
  const auto plain = config["qk_nope_head_dim"].get<size_t>();
  const auto value = config["v_head_dim"].get<size_t>();
  const auto rank = config["kv_lora_rank"].get<size_t>();
  for (int64_t layer = 0; layer < config["num_hidden_layers"].get<int64_t>(); ++layer) {
    const std::string stem = "blk." + std::to_string(layer) + ".attn_";
    const auto found = tensors.find(stem + "kv_b.weight");
    const std::string& whole = found->second.bytes;
    const auto signed_of = [](size_t size) { return static_cast<int64_t>(size); };
    StoredMatrix keys{{signed_of(heads), signed_of(rank), signed_of(plain)}, DType::BF16, ""};
    StoredMatrix values{{signed_of(heads), signed_of(value), signed_of(rank)}, DType::BF16, ""};
    for (size_t head = 0; head < heads; ++head) {
      const size_t first = head * (plain + value);
      for (size_t column = 0; column < rank; ++column) {
        for (size_t row = 0; row < plain; ++row) {
          keys.bytes += whole.substr(((first + row) * rank + column) * 2, 2);
        }
      }
      values.bytes += whole.substr((first + plain) * rank * 2, value * rank * 2);
    }
    tensors.erase(found);
    tensors.emplace(stem + "k_b.weight", std::move(keys));
    tensors.emplace(stem + "v_b.weight", std::move(values));
  }
  return tensors;
}

// Joins the matrices "blk.L.ffn_gate.E.weight" of a layer's experts to one tensor.
inline std::map<std::string, StoredMatrix> with_merged_experts(
    const std::map<std::string, StoredMatrix>& tensors, int64_t experts) {
  std::map<std::string, StoredMatrix> merged;
  for (const auto& [name, matrix] : tensors) {
    const size_t expert_at = name.find(".0.weight");
    const bool single = name.find(".ffn_") != std::string::npos && name.size() > 9 &&
                        std::isdigit(static_cast<unsigned char>(name[name.size() - 8])) != 0;
    if (!single) merged.emplace(name, matrix);
    if (!single || expert_at == std::string::npos) continue;
    StoredMatrix all{{experts, matrix.shape[0], matrix.shape[1]}, matrix.dtype, ""};
    const std::string stem = name.substr(0, expert_at);
    for (int64_t e = 0; e < experts; ++e) {
      all.bytes += tensors.at(stem + "." + std::to_string(e) + ".weight").bytes;
    }
    merged.emplace(stem + "_exps.weight", std::move(all));
  }
  return merged;
}

// The number of a type in files.
inline uint32_t gguf_number(DType dtype) {
  static const std::map<DType, uint32_t> kNumbers = {
      {DType::F32, 0},     {DType::F16, 1},     {DType::Q4_0, 2},  {DType::Q4_1, 3},
      {DType::Q5_0, 6},    {DType::Q5_1, 7},    {DType::Q8_0, 8},  {DType::Q2_K, 10},
      {DType::Q3_K, 11},   {DType::Q4_K, 12},   {DType::Q5_K, 13}, {DType::Q6_K, 14},
      {DType::IQ4_NL, 20}, {DType::IQ4_XS, 23}, {DType::BF16, 30}, {DType::MXFP4, 39}};
  return kNumbers.at(dtype);
}

// Writes the model of a folder as "NAME.gguf" or its shards; returns the path of the first file.
inline std::filesystem::path write_gguf_model(const std::filesystem::path& from,
                                              const std::filesystem::path& to,
                                              const std::string& name,
                                              const GgufChoice& choice = {}) {
  const Json config = parse_json(read_text_file(from / "config.json", 1 << 20), "config");
  auto tensors = gguf_tensors(Checkpoint::open(from), config);
  if (choice.merged) {
    const char* field = config.contains("num_experts")        ? "num_experts"
                        : config.contains("n_routed_experts") ? "n_routed_experts"
                                                              : "num_local_experts";
    tensors = with_merged_experts(tensors, config[field]);
  }
  if (choice.apart) tensors = with_heads_apart(std::move(tensors), config);
  std::vector<Pieces> files(static_cast<size_t>(choice.shards));
  files[0].pairs = gguf_metadata(config, choice.apart);
  size_t next = 0;
  for (const auto& [tensor, stored] : tensors) {
    const bool packs = choice.pack && stored.dtype == DType::BF16;
    const StoredMatrix matrix = packs ? choice.pack(stored) : stored;
    files[next++ % files.size()].add(tensor, matrix.shape, gguf_number(matrix.dtype), matrix.bytes);
  }
  const auto path_of = [&](size_t i) {
    return to / (choice.shards == 1
                     ? name + ".gguf"
                     : fmt::format("{}-{:05}-of-{:05}.gguf", name, i + 1, choice.shards));
  };
  for (size_t i = 0; i < files.size(); ++i) {
    if (choice.shards > 1) {
      files[i].pairs.push_back(u16_pair("split.no", static_cast<uint16_t>(i)));
      files[i].pairs.push_back(u16_pair("split.count", static_cast<uint16_t>(choice.shards)));
    }
    testing_files::write_file(path_of(i), files[i].file());
  }
  return path_of(0);
}

}  // namespace klotski::testing_gguf
