#include "model/config.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "model/tensors.h"

namespace klotski {
namespace {

Json mixtral() {
  return parse_json(R"({"model_type":"mixtral","vocab_size":256,"hidden_size":64,
    "intermediate_size":128,"num_hidden_layers":3,"num_attention_heads":4,"num_key_value_heads":2,
    "num_local_experts":8,"num_experts_per_tok":2,"max_position_embeddings":512,
    "rms_norm_eps":1e-5,"hidden_act":"silu","rope_theta":1e6,"eos_token_id":2,"bos_token_id":1})",
                    "f");
}

Json qwen3() {
  return parse_json(R"({"model_type":"qwen3_moe","vocab_size":256,"hidden_size":64,"head_dim":32,
    "intermediate_size":96,"moe_intermediate_size":48,"num_hidden_layers":4,
    "num_attention_heads":4,"num_key_value_heads":2,"num_experts":16,"num_experts_per_tok":4,
    "norm_topk_prob":true,"max_position_embeddings":512,"rms_norm_eps":1e-6,
    "mlp_only_layers":[0],"decoder_sparse_step":1,"eos_token_id":[2,3]})",
                    "f");
}

ModelDescription described(const Json& config) {
  return parse_config(config.dump(), "config.json");
}

std::string error_of(const Json& config) {
  try {
    described(config);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::bad_model);
    return error.what();
  }
  return "";
}

TEST(ParseConfig, DescribesMixtral) {
  const ModelDescription model = described(mixtral());
  EXPECT_EQ(model.layer_count(), 3);
  EXPECT_EQ(model.layers[0].attention.grouped_heads().head_dim, 16);
  EXPECT_EQ(model.layers[0].feed_forward.experts, 8);
  EXPECT_TRUE(model.layers[0].feed_forward.router.renormalise);
  EXPECT_EQ(model.end_tokens, std::vector<TokenId>{2});
  EXPECT_EQ(expert_tensors(model, LayerId(1), ExpertId(7))[2].name,
            "model.layers.1.block_sparse_moe.experts.7.w2.weight");
  EXPECT_EQ(expert_tensors(model, LayerId(1), ExpertId(7))[2].shape, (Shape{64, 128}));
}

TEST(ParseConfig, ADenseLayerIsOneExpertUnderItsOwnNames) {
  const ModelDescription model = described(qwen3());
  EXPECT_FALSE(model.layers[0].feed_forward.routed);
  EXPECT_EQ(model.layers[0].feed_forward.experts, 1);
  EXPECT_TRUE(model.layers[1].feed_forward.routed);
  EXPECT_EQ(expert_tensors(model, LayerId(0), ExpertId(0))[0].name,
            "model.layers.0.mlp.gate_proj.weight");
  EXPECT_EQ(expert_tensors(model, LayerId(0), ExpertId(0))[0].shape, (Shape{96, 64}));
  EXPECT_EQ(model.end_tokens, (std::vector<TokenId>{2, 3}));
}

TEST(ParseConfig, SparseStepPassesOverLayers) {
  Json config = qwen3();
  config["mlp_only_layers"] = nullptr;
  config["decoder_sparse_step"] = 2;
  const ModelDescription model = described(config);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(model.layers[i].feed_forward.routed, i % 2 == 1);
}

TEST(ParseConfig, WindowsFollowLayerTypesOrTheOlderRule) {
  Json config = qwen3();
  config["model_type"] = "qwen2_moe";
  config["shared_expert_intermediate_size"] = 32;
  config["sliding_window"] = 8;
  EXPECT_EQ(described(config).layers[0].attention.grouped_heads().window, 0) << "not switched on";
  config["use_sliding_window"] = true;
  config["max_window_layers"] = 3;
  ModelDescription model = described(config);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(model.layers[i].attention.grouped_heads().window, i % 2 == 0 && i < 3 ? 8 : 0);
  }
  config["layer_types"] = {"full_attention", "full_attention", "sliding_attention",
                           "sliding_attention"};
  model = described(config);
  for (size_t i = 0; i < 4; ++i)
    EXPECT_EQ(model.layers[i].attention.grouped_heads().window, i >= 2 ? 8 : 0);
}

// Every field that could divide by zero, overflow or contradict another is refused by name.
TEST(ParseConfig, RefusesBadFieldsByName) {
  struct Case {
    const char* field;
    Json value;
  };
  const std::vector<Case> cases = {
      {"num_attention_heads", 0},
      {"num_attention_heads", -4},
      {"num_attention_heads", 4.5},
      {"num_key_value_heads", 3},
      {"num_key_value_heads", 0},
      {"num_experts_per_tok", 9},
      {"num_experts_per_tok", 0},
      {"num_local_experts", 0},
      {"num_local_experts", 1000000000},
      {"hidden_size", 66},
      {"hidden_size", -1},
      {"hidden_size", "64"},
      {"num_hidden_layers", -1},
      {"num_hidden_layers", 0},
      {"vocab_size", 0},
      {"vocab_size", 1e99},
      {"rms_norm_eps", 0.0},
      {"rms_norm_eps", nullptr},
      {"rms_norm_eps", "nan"},
      {"max_position_embeddings", 0},
      {"intermediate_size", 0},
      {"head_dim", 0},
      {"hidden_act", "gelu_fast_unknown"},
      {"eos_token_id", 256},
      {"eos_token_id", -1},
      {"bos_token_id", "x"},
      {"tie_word_embeddings", 1},
      {"sliding_window", -5},
      {"rope_theta", 0},
      {"rope_theta", "big"},
      {"rope_scaling", 7},
      {"model_type", "gpt17"},
      {"model_type", nullptr},
  };
  for (const Case& bad : cases) {
    Json config = mixtral();
    config[bad.field] = bad.value;
    const std::string message = error_of(config);
    EXPECT_NE(message.find(bad.field), std::string::npos)
        << bad.field << " = " << bad.value.dump() << " gave: " << message;
    EXPECT_EQ(message.find('\n'), std::string::npos);
  }
}

TEST(ParseConfig, AnUnknownFamilyIsRefusedWithTheNearestOne) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"mixtrel", "mixtral"},
      {"qwen3moe", "qwen3_moe"},
      {"glm_moe", "glm4_moe"},
      {"hunyuan_v2_moe", "hunyuan_v1_moe"},
      {"", "dbrx"}};
  for (const auto& [type, nearest] : cases) {
    Json config = mixtral();
    config["model_type"] = type;
    const std::string message = error_of(config);
    EXPECT_NE(message.find("of which " + nearest + " is nearest"), std::string::npos) << message;
    EXPECT_NE(message.find("arctic, dbrx, "), std::string::npos) << message;
  }
  Json config = mixtral();
  config["model_type"] = std::string(1 << 20, 'x');
  EXPECT_FALSE(error_of(config).empty()) << "a long name takes no long time";
}

TEST(ParseConfig, RefusesBadRopeScalingByName) {
  struct Case {
    const char* scaling;
    const char* field;
  };
  const std::vector<Case> cases = {
      {R"({"type":"linear","factor":0})", "rope_scaling.factor"},
      {R"({"type":"linear"})", "rope_scaling.factor"},
      {R"({"type":"linear","factor":-2})", "rope_scaling.factor"},
      {R"({"type":"spiral","factor":2})", "rope_scaling.type"},
      {R"({"rope_type":"llama3","factor":8,"low_freq_factor":4,"high_freq_factor":4})",
       "rope_scaling.high_freq_factor"},
      {R"({"rope_type":"longrope","short_factor":[1,1],"long_factor":[1]})",
       "rope_scaling.short_factor"},
      {R"({"rope_type":"yarn","factor":4,"original_max_position_embeddings":0})",
       "rope_scaling.original_max_position_embeddings"},
  };
  for (const Case& bad : cases) {
    Json config = mixtral();
    config["rope_scaling"] = parse_json(bad.scaling, "f");
    EXPECT_NE(error_of(config).find(bad.field), std::string::npos)
        << bad.scaling << " gave: " << error_of(config);
  }
}

Json gpt_oss() {
  Json config = mixtral();
  config.update({{"model_type", "gpt_oss"}, {"head_dim", 16}, {"sliding_window", 8}});
  config.erase("hidden_act");
  return config;
}

Json llama4() {
  Json config = mixtral();
  config.update({{"model_type", "llama4_text"},
                 {"head_dim", 16},
                 {"attention_chunk_size", 8},
                 {"intermediate_size_mlp", 96},
                 {"num_hidden_layers", 5}});
  return config;
}

TEST(ParseConfig, GptOssHasItsDefaults) {
  const ModelDescription model = described(gpt_oss());
  for (size_t i = 0; i < 3; ++i) {
    const GroupedHeads& attention = model.layers[i].attention.grouped_heads();
    EXPECT_EQ(attention.window, i % 2 == 0 ? 8 : 0);
    EXPECT_TRUE(attention.sinks && attention.qkv_bias && attention.output_bias);
  }
  EXPECT_EQ(model.rope.kind, RopeKind::yarn);
  EXPECT_FALSE(model.rope.truncate);
  EXPECT_NEAR(model.rope.attention_factor, 1.3465735902799727, 1e-12);
  EXPECT_EQ(model.max_positions, 131072);
  EXPECT_EQ(model.layers[0].feed_forward.swiglu, (ClampedSwiglu{1.702f, 7.0f}));
  const std::vector<TensorSpec> expert = expert_tensors(model, LayerId(1), ExpertId(7));
  ASSERT_EQ(expert.size(), 6u);
  EXPECT_EQ(expert[1].name, "model.layers.1.mlp.experts.gate_up_proj");
  EXPECT_TRUE(expert[1].slice->interleaved && expert[1].slice->transposed);
  EXPECT_EQ(expert[4].slice->first_row, 128);
  EXPECT_FALSE(expert[4].slice->transposed);
}

TEST(ParseConfig, Llama4HasItsDefaults) {
  const ModelDescription model = described(llama4());
  for (size_t i = 0; i < 5; ++i) {
    const GroupedHeads& attention = model.layers[i].attention.grouped_heads();
    EXPECT_EQ(attention.rotated, i != 3);
    EXPECT_EQ(attention.tempered, i == 3);
    EXPECT_EQ(attention.chunk, i == 3 ? 0 : 8);
    EXPECT_EQ(attention.norm, i == 3 ? HeadNorm::none : HeadNorm::after_rope);
    EXPECT_TRUE(model.layers[i].feed_forward.scales_inputs);
  }
  EXPECT_EQ(model.query_temperature->step_positions, 8192);
  EXPECT_TRUE(model.rope.interleaved);
  Json config = llama4();
  config["interleave_moe_layer_step"] = 2;
  config["attn_temperature_tuning"] = 4;
  EXPECT_TRUE(described(config).query_temperature);
  config["attn_temperature_tuning"] = 0;
  EXPECT_FALSE(described(config).query_temperature);
  config["attn_temperature_tuning"] = false;
  config["layer_types"] = std::vector<std::string>(5, "full_attention");
  const ModelDescription other = described(config);
  EXPECT_FALSE(other.query_temperature);
  EXPECT_FALSE(other.layers[0].feed_forward.routed);
  EXPECT_EQ(other.layers[0].feed_forward.width, 96);
  EXPECT_TRUE(other.layers[1].feed_forward.routed);
  EXPECT_EQ(other.layers[0].attention.grouped_heads().chunk, 0);
}

TEST(ParseConfig, RefusesBadFieldsOfGptOssAndLlama4ByName) {
  struct Case {
    Json config;
    const char* field;
    Json value;
  };
  const Json partial = {{"rope_type", "default"}, {"partial_rotary_factor", 0.5}};
  const std::vector<Case> cases = {
      {gpt_oss(), "head_dim", nullptr},
      {gpt_oss(), "num_key_value_heads", nullptr},
      {gpt_oss(), "sliding_window", nullptr},
      {gpt_oss(), "sliding_window", 0},
      {gpt_oss(), "sliding_window", "8"},
      {gpt_oss(), "layer_types", {"full_attention"}},
      {gpt_oss(), "layer_types", {"full_attention", "full_attention", "chunked_attention"}},
      {gpt_oss(), "layer_types", 3},
      {gpt_oss(), "attention_bias", 1},
      {gpt_oss(), "swiglu_limit", 0.0},
      {gpt_oss(), "swiglu_limit", -7.0},
      {gpt_oss(), "swiglu_alpha", "nan"},
      {gpt_oss(), "swiglu_alpha", 1e99},
      {gpt_oss(), "partial_rotary_factor", 0.5},
      {gpt_oss(), "rope_parameters", partial},
      {gpt_oss(), "num_experts_per_tok", 9},
      {gpt_oss(), "intermediate_size", 0},
      {llama4(), "head_dim", nullptr},
      {llama4(), "attention_chunk_size", 0},
      {llama4(), "attention_chunk_size", nullptr},
      {llama4(), "attention_chunk_size", 1e30},
      {llama4(), "no_rope_layers", {1, 1}},
      {llama4(), "no_rope_layers", {1, 1, 1, 1, 2}},
      {llama4(), "no_rope_layer_interval", 0},
      {llama4(), "moe_layers", {-1}},
      {llama4(), "moe_layers", "all"},
      {llama4(), "interleave_moe_layer_step", 0},
      {llama4(), "intermediate_size_mlp", -1},
      {llama4(), "use_qk_norm", "yes"},
      {llama4(), "attn_temperature_tuning", "yes"},
      {llama4(), "attn_temperature_tuning", -1},
      {llama4(), "floor_scale", 0},
      {llama4(), "attn_scale", 1e9},
      {llama4(), "layer_types", std::vector<std::string>(5, "sliding_attention")},
      {llama4(), "partial_rotary_factor", 2.0},
      {llama4(), "num_experts_per_tok", 0},
  };
  for (const Case& bad : cases) {
    Json config = bad.config;
    config[bad.field] = bad.value;
    const std::string message = error_of(config);
    EXPECT_NE(message.find(bad.field), std::string::npos)
        << bad.field << " = " << bad.value.dump() << " gave: " << message;
  }
}

TEST(ParseConfig, EveryMissingRequiredFieldIsNamed) {
  const Json whole = mixtral();
  int required = 0;
  for (const auto& item : whole.items()) {
    Json config = whole;
    config.erase(item.key());
    const std::string message = error_of(config);
    if (message.empty()) continue;
    ++required;
    EXPECT_NE(message.find(item.key()), std::string::npos) << item.key() << " gave " << message;
  }
  EXPECT_GE(required, 9);
}

}  // namespace
}  // namespace klotski
