// Configurations of families with latent attention: what each field does, and hostile values.

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "model/config.h"
#include "model/tensors.h"

namespace klotski {
namespace {

Json deepseek_config(const char* type) {
  Json config = parse_json(R"({"vocab_size":256,"hidden_size":66,"intermediate_size":128,
    "moe_intermediate_size":48,"num_hidden_layers":4,"num_attention_heads":4,
    "num_key_value_heads":4,"n_routed_experts":8,"num_experts_per_tok":4,"n_shared_experts":2,
    "n_group":4,"topk_group":2,"first_k_dense_replace":1,"routed_scaling_factor":2.5,
    "kv_lora_rank":32,"q_lora_rank":24,"qk_nope_head_dim":16,"qk_rope_head_dim":8,"v_head_dim":12,
    "max_position_embeddings":512,"rms_norm_eps":1e-5,"hidden_act":"silu","rope_theta":1e4,
    "eos_token_id":2,"bos_token_id":1})",
                           "f");
  config["model_type"] = type;
  return config;
}

ModelDescription deepseek_model(const Json& config) {
  return parse_config(config.dump(), "config.json");
}

std::string refusal_of(const Json& config) {
  try {
    deepseek_model(config);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::bad_model);
    return error.what();
  }
  return "";
}

TEST(DeepseekConfig, DescribesV3) {
  const ModelDescription model = deepseek_model(deepseek_config("deepseek_v3"));
  const LatentAttention& latent = model.layers[0].attention.latent();
  EXPECT_EQ(latent.query_heads, 4);
  EXPECT_EQ(latent.query_rank, 24);
  EXPECT_EQ(latent.key_width(), 40);
  EXPECT_EQ(latent.head_rows(), 28);
  EXPECT_FLOAT_EQ(latent.scale, 1.0f / std::sqrt(24.0f));
  EXPECT_FLOAT_EQ(latent.norm_epsilon, 1e-6f);
  EXPECT_FLOAT_EQ(model.norm_epsilon, 1e-5f);
  EXPECT_EQ(model.rope.rotated_dims, 8);
  EXPECT_TRUE(model.rope.interleaved);
  EXPECT_FALSE(model.layers[0].feed_forward.routed);
  EXPECT_EQ(model.layers[0].feed_forward.width, 128);
  const FeedForward& part = model.layers[1].feed_forward;
  EXPECT_TRUE(part.selection_bias);
  EXPECT_EQ(part.shared->width, 96);
  EXPECT_FALSE(part.shared->gated);
  EXPECT_EQ(part.router.score, ScoreFunction::sigmoid);
  EXPECT_EQ(part.router.group_score, GroupScore::best_two);
  EXPECT_EQ(part.router.groups, 4);
  EXPECT_EQ(part.router.groups_kept, 2);
  EXPECT_TRUE(part.router.renormalise);
  EXPECT_FLOAT_EQ(part.router.scale, 2.5f);
}

TEST(DeepseekConfig, KimiK2ComputesAsV3) {
  const ModelDescription kimi = deepseek_model(deepseek_config("kimi_k2"));
  const ModelDescription v3 = deepseek_model(deepseek_config("deepseek_v3"));
  EXPECT_EQ(kimi.layers[1].attention.shape(), v3.layers[1].attention.shape());
  EXPECT_EQ(kimi.layers[1].feed_forward.router.score, ScoreFunction::sigmoid);
  EXPECT_EQ(attention_tensors(kimi, LayerId(1))[1].name, attention_tensors(v3, LayerId(1))[1].name);
}

TEST(DeepseekConfig, V2ChoosesAmongAllExpertsOrTheBestGroups) {
  Json config = deepseek_config("deepseek_v2");
  config["norm_topk_prob"] = true;  // the reference implementation does not read it
  FeedForward part = deepseek_model(config).layers[1].feed_forward;
  EXPECT_EQ(part.router.score, ScoreFunction::softmax);
  EXPECT_EQ(part.router.groups, 1);
  EXPECT_FALSE(part.router.renormalise);
  EXPECT_FALSE(part.selection_bias);
  config["topk_method"] = "group_limited_greedy";
  part = deepseek_model(config).layers[1].feed_forward;
  EXPECT_EQ(part.router.groups, 4);
  EXPECT_EQ(part.router.groups_kept, 2);
  EXPECT_EQ(part.router.group_score, GroupScore::best);
}

TEST(DeepseekConfig, AStretchedRopeSharpensScores) {
  Json config = deepseek_config("deepseek_v3");
  config["rope_scaling"] = {{"type", "yarn"},
                            {"factor", 40},
                            {"mscale", 1.0},
                            {"mscale_all_dim", 1.0},
                            {"original_max_position_embeddings", 64}};
  const ModelDescription model = deepseek_model(config);
  const double sharper = 0.1 * std::log(40.0) + 1.0;
  EXPECT_NEAR(model.layers[0].attention.latent().scale, sharper * sharper / std::sqrt(24.0), 1e-6);
  EXPECT_DOUBLE_EQ(model.rope.attention_factor, 1.0);
  config["rope_scaling"].erase("mscale_all_dim");
  EXPECT_FLOAT_EQ(deepseek_model(config).layers[0].attention.latent().scale,
                  1.0f / std::sqrt(24.0f));
}

TEST(DeepseekConfig, OptionsAreFields) {
  Json config = deepseek_config("deepseek_v3");
  config["q_lora_rank"] = nullptr;
  config["attention_bias"] = true;
  config["rope_interleave"] = false;
  config["n_shared_experts"] = nullptr;
  config["norm_topk_prob"] = false;
  config["first_k_dense_replace"] = 0;
  const ModelDescription model = deepseek_model(config);
  const LatentAttention& latent = model.layers[0].attention.latent();
  EXPECT_EQ(latent.query_rank, 0);
  EXPECT_TRUE(latent.input_bias && latent.output_bias);
  EXPECT_FALSE(model.rope.interleaved);
  EXPECT_TRUE(model.layers[0].feed_forward.routed);
  EXPECT_FALSE(model.layers[0].feed_forward.shared);
  EXPECT_FALSE(model.layers[0].feed_forward.router.renormalise);
  std::vector<std::string> names;
  for (const TensorSpec& spec : attention_tensors(model, LayerId(0))) names.push_back(spec.name);
  const std::string layer = "model.layers.0.";
  EXPECT_EQ(names,
            (std::vector<std::string>{
                layer + "input_layernorm.weight", layer + "self_attn.q_proj.weight",
                layer + "self_attn.kv_a_proj_with_mqa.weight",
                layer + "self_attn.kv_a_proj_with_mqa.bias",
                layer + "self_attn.kv_a_layernorm.weight", layer + "self_attn.kv_b_proj.weight",
                layer + "self_attn.o_proj.weight", layer + "self_attn.o_proj.bias"}));
}

// Fields that would divide by zero, overflow, contradict another or change the arithmetic in a way
// that is not computed are refused by name.
TEST(DeepseekConfig, RefusesBadFieldsByName) {
  struct Case {
    const char* field;
    Json value;
  };
  const std::vector<Case> cases = {
      {"num_attention_heads", 0},
      {"num_attention_heads", 100000},
      {"num_attention_heads", 5},  // with num_key_value_heads 4
      {"num_key_value_heads", 2},
      {"num_key_value_heads", "4"},
      {"q_lora_rank", 0},
      {"q_lora_rank", -1},
      {"q_lora_rank", 1.5},
      {"kv_lora_rank", 0},
      {"kv_lora_rank", nullptr},
      {"kv_lora_rank", 1000000000},
      {"kv_lora_rank", 200000},
      {"qk_nope_head_dim", 0},
      {"qk_nope_head_dim", 100000},
      {"qk_rope_head_dim", 0},
      {"qk_rope_head_dim", 7},
      {"qk_rope_head_dim", "8"},
      {"v_head_dim", 0},
      {"v_head_dim", 100000},
      {"attention_bias", "yes"},
      {"mlp_bias", true},
      {"moe_layer_freq", 2},
      {"moe_layer_freq", Json::array({0, 1})},
      {"partial_rotary_factor", 0.5},
      {"n_routed_experts", 0},
      {"n_routed_experts", nullptr},
      {"n_routed_experts", 9},  // no multiple of n_group
      {"n_shared_experts", -1},
      {"n_shared_experts", 5000},
      {"num_experts_per_tok", 0},
      {"num_experts_per_tok", 5},  // experts of two groups: 4
      {"n_group", 0},
      {"n_group", 3},
      {"n_group", 16},
      {"n_group", nullptr},
      {"topk_group", 0},
      {"topk_group", 5},
      {"first_k_dense_replace", -1},
      {"first_k_dense_replace", 1e9},
      {"routed_scaling_factor", -1},
      {"routed_scaling_factor", "2"},
      {"moe_intermediate_size", 0},
      {"intermediate_size", 0},
      {"norm_topk_prob", 1},
      {"rope_interleave", "no"},
      {"scoring_func", "softmax"},
      {"topk_method", "greedy"},
      {"hidden_act", "swiglu"},
  };
  for (const Case& bad : cases) {
    Json config = deepseek_config("deepseek_v3");
    config[bad.field] = bad.value;
    const std::string message = refusal_of(config);
    const bool named = message.find(bad.field) != std::string::npos ||
                       // The total of heads times widths is refused by the number of heads, and a
                       // number of experts by the groups that it cannot be divided into.
                       message.find("num_attention_heads") != std::string::npos ||
                       message.find("n_group") != std::string::npos;
    EXPECT_TRUE(named) << bad.field << " = " << bad.value.dump() << " gave: " << message;
  }
  for (const Case& bad : std::vector<Case>{{"scoring_func", "sigmoid"},
                                           {"topk_method", "noaux_tc"},
                                           {"topk_method", 3},
                                           {"mlp_bias", true}}) {
    Json config = deepseek_config("deepseek_v2");
    config[bad.field] = bad.value;
    EXPECT_NE(refusal_of(config).find(bad.field), std::string::npos) << bad.field;
  }
}

TEST(DeepseekConfig, GroupsOfTheBestTwoHaveTwoExperts) {
  Json config = deepseek_config("deepseek_v3");
  config["n_group"] = 8;
  config["topk_group"] = 8;
  EXPECT_NE(refusal_of(config).find("at least two"), std::string::npos);
  config["n_group"] = config["topk_group"] = 1;
  EXPECT_EQ(refusal_of(config), "");
}

}  // namespace
}  // namespace klotski
