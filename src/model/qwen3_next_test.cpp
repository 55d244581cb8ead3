// Configurations of Qwen3-Next: what each field does, and hostile values.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "model/config.h"
#include "model/tensors.h"

namespace klotski {
namespace {

Json next_config() {
  return parse_json(R"({"model_type":"qwen3_next","vocab_size":256,"hidden_size":64,
    "intermediate_size":80,"moe_intermediate_size":24,"shared_expert_intermediate_size":28,
    "num_hidden_layers":8,"full_attention_interval":4,"num_attention_heads":4,
    "num_key_value_heads":2,"head_dim":32,"num_experts":8,"num_experts_per_tok":2,
    "linear_num_key_heads":2,"linear_num_value_heads":4,"linear_key_head_dim":16,
    "linear_value_head_dim":12,"linear_conv_kernel_dim":3,"max_position_embeddings":512,
    "rms_norm_eps":1e-6,"hidden_act":"silu","rope_theta":1e7})",
                    "f");
}

ModelDescription next_model(const Json& config) {
  return parse_config(config.dump(), "config.json");
}

std::string refusal_of_next(const Json& config) {
  try {
    next_model(config);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::bad_model);
    return error.what();
  }
  return "";
}

bool is_delta_net(const Layer& layer) {
  return std::holds_alternative<GatedDeltaNet>(layer.attention.kind);
}

TEST(Qwen3NextConfig, DescribesBothKindsOfLayers) {
  const ModelDescription model = next_model(next_config());
  for (size_t i = 0; i < 8; ++i) EXPECT_EQ(is_delta_net(model.layers[i]), i % 4 != 3) << i;
  const GatedDeltaNet& net = model.layers[0].attention.delta_net();
  EXPECT_EQ(net.key_heads, 2);
  EXPECT_EQ(net.value_heads, 4);
  EXPECT_EQ(net.key_dim, 16);
  EXPECT_EQ(net.value_dim, 12);
  EXPECT_EQ(net.taps, 3);
  EXPECT_EQ(net.mixed_width(), 2 * 32 + 48);
  const GroupedHeads& heads = model.layers[3].attention.grouped_heads();
  EXPECT_TRUE(heads.output_gate);
  EXPECT_EQ(heads.norm, HeadNorm::per_head);
  EXPECT_FALSE(heads.qkv_bias);
  EXPECT_EQ(model.rope.rotated_dims, 8);  // a quarter of a head
  EXPECT_EQ(model.norm_offset, 1.0f);
  const FeedForward& part = model.layers[0].feed_forward;
  EXPECT_TRUE(part.router.renormalise);
  EXPECT_TRUE(part.shared->gated);
  EXPECT_EQ(part.shared->width, 28);
}

TEST(Qwen3NextConfig, LayerTypesCountBeforeTheInterval) {
  Json config = next_config();
  config["num_hidden_layers"] = 2;
  config["layer_types"] = {"full_attention", "linear_attention"};
  const ModelDescription model = next_model(config);
  EXPECT_FALSE(is_delta_net(model.layers[0]));
  EXPECT_TRUE(is_delta_net(model.layers[1]));
  config["layer_types"] = {"full_attention", "sliding_attention"};
  EXPECT_NE(refusal_of_next(config).find("layer_types"), std::string::npos);
  config["layer_types"] = {"full_attention"};
  EXPECT_NE(refusal_of_next(config).find("array of 2"), std::string::npos);
}

TEST(Qwen3NextConfig, FieldsThatAreLeftOutHaveTheirUsualValues) {
  Json config = next_config();
  for (const char* field :
       {"linear_num_key_heads", "linear_num_value_heads", "linear_key_head_dim",
        "linear_value_head_dim", "linear_conv_kernel_dim", "full_attention_interval"}) {
    config.erase(field);
  }
  const ModelDescription model = next_model(config);
  const GatedDeltaNet& net = model.layers[0].attention.delta_net();
  EXPECT_EQ(net.key_heads, 16);
  EXPECT_EQ(net.value_heads, 32);
  EXPECT_EQ(net.key_dim, 128);
  EXPECT_EQ(net.value_dim, 128);
  EXPECT_EQ(net.taps, 4);
  EXPECT_FALSE(is_delta_net(model.layers[3]));
}

TEST(Qwen3NextConfig, OtherSwitches) {
  Json config = next_config();
  config["attention_bias"] = true;
  config["norm_topk_prob"] = false;
  config["partial_rotary_factor"] = 0.5;
  config["hidden_act"] = "gelu";
  config["mlp_only_layers"] = {1};
  const ModelDescription model = next_model(config);
  EXPECT_TRUE(model.layers[3].attention.grouped_heads().qkv_bias);
  EXPECT_TRUE(model.layers[3].attention.grouped_heads().output_bias);
  EXPECT_FALSE(model.layers[0].feed_forward.router.renormalise);
  EXPECT_EQ(model.rope.rotated_dims, 16);
  EXPECT_EQ(model.layers[0].attention.delta_net().activation, Activation::gelu);
  EXPECT_FALSE(model.layers[1].feed_forward.routed);
}

TEST(Qwen3NextConfig, NamesTheTensorsOfBothKinds) {
  const ModelDescription model = next_model(next_config());
  std::vector<std::string> names;
  for (const int64_t layer : {0, 3}) {
    for (const TensorSpec& spec : attention_tensors(model, LayerId(layer))) {
      names.push_back(spec.name + " " + format_shape(spec.shape));
    }
  }
  const std::vector<std::string> expected = {
      "model.layers.0.input_layernorm.weight [64]",
      "model.layers.0.linear_attn.in_proj_qkvz.weight [160, 64]",
      "model.layers.0.linear_attn.in_proj_ba.weight [8, 64]",
      "model.layers.0.linear_attn.conv1d.weight [112, 3]",
      "model.layers.0.linear_attn.A_log [4]",
      "model.layers.0.linear_attn.dt_bias [4]",
      "model.layers.0.linear_attn.norm.weight [12]",
      "model.layers.0.linear_attn.out_proj.weight [64, 48]",
      "model.layers.3.input_layernorm.weight [64]",
      "model.layers.3.self_attn.q_proj.weight [256, 64]",
      "model.layers.3.self_attn.k_proj.weight [64, 64]",
      "model.layers.3.self_attn.v_proj.weight [64, 64]",
      "model.layers.3.self_attn.q_norm.weight [32]",
      "model.layers.3.self_attn.k_norm.weight [32]",
      "model.layers.3.self_attn.o_proj.weight [64, 128]"};
  EXPECT_EQ(names, expected);
}

TEST(Qwen3NextConfig, RefusesHostileFields) {
  struct Case {
    const char* field;
    Json value;
  };
  const std::vector<Case> cases = {{"linear_num_key_heads", 0},
                                   {"linear_num_key_heads", -2},
                                   {"linear_num_key_heads", int64_t{1} << 40},
                                   {"linear_num_key_heads", "2"},
                                   {"linear_num_value_heads", 3},  // no multiple of two key heads
                                   {"linear_num_value_heads", 0},
                                   {"linear_num_value_heads", int64_t{1} << 62},
                                   {"linear_key_head_dim", 0},
                                   {"linear_key_head_dim", 1025},
                                   {"linear_value_head_dim", 0},
                                   {"linear_value_head_dim", 1 << 17},  // four heads are too wide
                                   {"linear_conv_kernel_dim", 0},
                                   {"linear_conv_kernel_dim", 65},
                                   {"linear_conv_kernel_dim", 2.5},
                                   {"full_attention_interval", 0},
                                   {"full_attention_interval", -1},
                                   {"layer_types", "linear_attention"},
                                   {"layer_types", {1, 2}},
                                   {"partial_rotary_factor", 0.0},
                                   {"partial_rotary_factor", 0.01},
                                   {"partial_rotary_factor", 1.5},
                                   {"shared_expert_intermediate_size", 0},
                                   {"hidden_act", "swiglu"}};
  for (const Case& one : cases) {
    Json config = next_config();
    config[one.field] = one.value;
    EXPECT_NE(refusal_of_next(config).find(one.field), std::string::npos)
        << one.field << " " << one.value.dump() << ": " << refusal_of_next(config);
  }
  Json wide = next_config();
  wide["linear_num_key_heads"] = wide["linear_num_value_heads"] = 1 << 10;
  wide["linear_key_head_dim"] = 1024;
  EXPECT_NE(refusal_of_next(wide).find("linear_key_head_dim"), std::string::npos);
  for (const char* field : {"head_dim", "shared_expert_intermediate_size"}) {
    Json config = next_config();
    config.erase(field);
    EXPECT_NE(refusal_of_next(config).find(field), std::string::npos);
  }
}

}  // namespace
}  // namespace klotski
