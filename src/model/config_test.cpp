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
