// Fields of the families with grouped heads: what each config becomes, and hostile values.

#include <gtest/gtest.h>

#include <cmath>

#include "base/file.h"
#include "model/config.h"
#include "model/counts.h"
#include "model/tensors.h"

namespace klotski {
namespace {

Json variant(const std::string& name) {
  const std::string path = std::string(KLOTSKI_TEST_DATA "/models/variants/") + name;
  return parse_json(read_text_file(path + "/config.json", 1 << 20), "config.json");
}

ModelDescription describe_family(const Json& config) {
  return parse_config(config.dump(), "config.json");
}

std::string family_error(const Json& config) {
  try {
    describe_family(config);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::bad_model);
    return error.what();
  }
  return "accepted";
}

struct Hostile {
  const char* pointer;  // JSON pointer of the field
  Json value;
};

// Each value is refused, by the name of its field.
void expect_refused(const std::string& name, const std::vector<Hostile>& cases) {
  for (const Hostile& bad : cases) {
    Json config = variant(name);
    const Json::json_pointer pointer(bad.pointer);
    config[pointer] = bad.value;
    const std::string message = family_error(config);
    EXPECT_NE(message.find(pointer.back()), std::string::npos)
        << name << " " << bad.pointer << " = " << bad.value.dump() << " gave: " << message;
    EXPECT_EQ(message.find('\n'), std::string::npos);
  }
}

const TensorSpec& tensor_of(const std::vector<TensorSpec>& specs, Role role) {
  for (const TensorSpec& spec : specs) {
    if (spec.role == role) return spec;
  }
  throw std::out_of_range("no such tensor");
}

TEST(Families, GlmRotatesPartOfAHeadAndKeepsGroups) {
  const ModelDescription model = describe_family(variant("glm4_head_norm_groups"));
  EXPECT_EQ(model.rope.rotated_dims, 4);
  const Layer& layer = model.layers.front();
  EXPECT_EQ(layer.attention.grouped_heads().norm, HeadNorm::per_head);
  EXPECT_EQ(layer.feed_forward.router.groups, 4);
  EXPECT_EQ(layer.feed_forward.router.groups_kept, 2);
  EXPECT_FALSE(layer.feed_forward.router.renormalise);
  EXPECT_EQ(layer.feed_forward.shared->width, 48);
  EXPECT_FALSE(describe_family(variant("glm4_bias_dense")).layers[0].feed_forward.routed);
}

TEST(Families, GlmRefusesHostileFields) {
  expect_refused("glm4_head_norm_groups", {{"/n_group", 3},
                                           {"/n_group", 8},
                                           {"/n_group", 0},
                                           {"/topk_group", 5},
                                           {"/topk_group", 0},
                                           {"/num_experts_per_tok", 5},
                                           {"/n_routed_experts", 0},
                                           {"/n_shared_experts", -1},
                                           {"/n_shared_experts", 1 << 30},
                                           {"/first_k_dense_replace", 4},
                                           {"/routed_scaling_factor", "big"},
                                           {"/routed_scaling_factor", 0},
                                           {"/use_qk_norm", 1},
                                           {"/rope_parameters/partial_rotary_factor", 0},
                                           {"/rope_parameters/partial_rotary_factor", 0.05},
                                           {"/rope_parameters/partial_rotary_factor", 1.5}});
}

TEST(Families, ErnieRoutesARangeOfLayers) {
  const ModelDescription model = describe_family(variant("ernie_interval_least_sum"));
  EXPECT_FALSE(model.layers[0].feed_forward.routed);
  EXPECT_TRUE(model.layers[1].feed_forward.routed);
  EXPECT_FALSE(model.layers[2].feed_forward.routed);
  EXPECT_FLOAT_EQ(model.layers[1].feed_forward.router.least_sum, 0.9f);
  EXPECT_TRUE(model.rope.interleaved);
  Json config = variant("ernie_tied");
  config.erase("tie_word_embeddings");
  EXPECT_TRUE(describe_family(config).tied_embeddings) << "the family's default";
}

TEST(Families, ErnieRefusesHostileFields) {
  expect_refused("ernie_interval_least_sum", {{"/moe_k", 7},
                                              {"/moe_num_experts", 0},
                                              {"/moe_layer_interval", 0},
                                              {"/moe_layer_start_index", -1},
                                              {"/moe_layer_end_index", -2},
                                              {"/moe_norm_min", -1},
                                              {"/moe_num_shared_experts", 1 << 20},
                                              {"/use_bias", true}});
}

TEST(Families, MinimaxTakesTheRotatedNumbersOfPublishedConfigs) {
  Json config = variant("minimax_partial");
  EXPECT_EQ(describe_family(config).rope.rotated_dims, 8);
  config["rope_parameters"].erase("partial_rotary_factor");
  EXPECT_EQ(describe_family(config).rope.rotated_dims, 16);
  config["rotary_dim"] = 4;
  EXPECT_EQ(describe_family(config).rope.rotated_dims, 4);
  EXPECT_EQ(describe_family(config).layers[0].attention.grouped_heads().norm, HeadNorm::whole);
}

TEST(Families, MinimaxRefusesHostileFields) {
  expect_refused("minimax_partial", {{"/rotary_dim", 18},
                                     {"/rotary_dim", 0},
                                     {"/scoring_func", "softmax"},
                                     {"/qk_norm_type", "per_head"},
                                     {"/shared_intermediate_size", 64},
                                     {"/use_routing_bias", "yes"}});
}

TEST(Families, HunyuanHasNumbersOfItsOwnInEachLayer) {
  Json config = variant("hunyuan_bias_layers");
  config["num_shared_expert"] = {1, 2, 1};
  config["moe_intermediate_size"] = {40, 24, 8};
  config["moe_layer_num_skipped"] = 1;
  const ModelDescription model = describe_family(config);
  EXPECT_FALSE(model.layers[0].feed_forward.routed);
  EXPECT_EQ(model.layers[1].feed_forward.router.top_k, 2);
  EXPECT_EQ(model.layers[2].feed_forward.router.top_k, 3);
  EXPECT_EQ(model.layers[1].feed_forward.shared->width, 80);
  EXPECT_EQ(model.layers[2].feed_forward.width, 8);
  config["use_mixed_mlp_moe"] = false;
  EXPECT_FALSE(describe_family(config).layers[1].feed_forward.shared.has_value());
}

TEST(Families, HunyuanStretchesTheBaseByAlpha) {
  const Rope rope = describe_family(variant("hunyuan_alpha")).rope;
  EXPECT_EQ(rope.kind, RopeKind::plain);
  EXPECT_NEAR(rope.base, 1e4 * std::pow(50.0, 16.0 / 14.0), 1e-3);
}

TEST(Families, HunyuanRefusesHostileFields) {
  expect_refused("hunyuan_bias_layers", {{"/moe_topk", Json::array({1, 2})},
                                         {"/moe_topk", Json::array({1, 2, 7})},
                                         {"/moe_topk", 0},
                                         {"/num_shared_expert", Json::array()},
                                         {"/num_shared_expert", 0},
                                         {"/moe_intermediate_size", Json::array({1, 2, -3})},
                                         {"/moe_layer_num_skipped", 4},
                                         {"/use_cla", true},
                                         {"/mlp_bias", true},
                                         {"/norm_type", "layer"}});
  expect_refused("hunyuan_alpha",
                 {{"/rope_parameters/alpha", -1}, {"/rope_parameters/alpha", "x"}});
}

TEST(Families, GraniteHasFactorsAndFusedExperts) {
  const ModelDescription model = describe_family(variant("granite_factors_bias"));
  EXPECT_FLOAT_EQ(model.embedding_scale, 3.0f);
  EXPECT_FLOAT_EQ(model.residual_scale, 0.4f);
  EXPECT_FLOAT_EQ(model.logit_scale, 0.4f);
  EXPECT_FLOAT_EQ(model.layers[0].attention.grouped_heads().scale, 0.2f);
  const std::vector<TensorSpec> expert = expert_tensors(model, LayerId(1), ExpertId(5));
  EXPECT_EQ(expert[1].name, "model.layers.1.block_sparse_moe.input_linear.weight");
  EXPECT_EQ(expert[1].slice->first_row, 40);
}

TEST(Families, GraniteRefusesHostileFields) {
  for (const char* factor : {"/embedding_multiplier", "/residual_multiplier",
                             "/attention_multiplier", "/logits_scaling"}) {
    expect_refused("granite_factors_bias",
                   {{factor, 0}, {factor, -1}, {factor, "x"}, {factor, 1e30}});
  }
}

TEST(Families, PhiHasLayerNormsBiasesAndASparseMixer) {
  const ModelDescription model = describe_family(variant("phimoe_biases_window"));
  EXPECT_EQ(model.norm, NormKind::layer);
  EXPECT_TRUE(model.norm_bias);
  EXPECT_EQ(tensor_of(model_tensors(model), Role::output_bias).name, "lm_head.bias");
  EXPECT_EQ(tensor_of(attention_tensors(model, LayerId(2)), Role::attention_norm_bias).name,
            "model.layers.2.input_layernorm.bias");
  EXPECT_EQ(model.layers[0].attention.grouped_heads().window, 5);
  EXPECT_FLOAT_EQ(model.layers[0].feed_forward.router.jitter, 0.2f);
  const Rope rope = describe_family(variant("phimoe_longrope")).rope;
  EXPECT_EQ(rope.attention_factor, 1.25);
  EXPECT_EQ(rope.long_factors, rope.short_factors);
}

TEST(Families, PhiRefusesHostileFields) {
  expect_refused("phimoe_biases_window", {{"/num_experts_per_tok", 1},
                                          {"/num_experts_per_tok", 3},
                                          {"/num_local_experts", 1},
                                          {"/router_jitter_noise", -0.1},
                                          {"/lm_head_bias", 3}});
  expect_refused("phimoe_longrope", {{"/rope_parameters/long_mscale", 1.5},
                                     {"/rope_parameters/short_mscale", nullptr},
                                     {"/rope_parameters/short_mscale", 0}});
  Json config = variant("phimoe_longrope");
  config["rope_parameters"]["rope_type"] = "linear";
  config["rope_parameters"]["factor"] = 2.0;
  EXPECT_NE(family_error(config).find("rope_type"), std::string::npos);
}

TEST(Families, DbrxStacksQueriesKeysAndValues) {
  const ModelDescription model = describe_family(variant("dbrx_clip"));
  const std::vector<TensorSpec> specs = attention_tensors(model, LayerId(1));
  const TensorSpec& value = tensor_of(specs, Role::value);
  EXPECT_EQ(value.name, tensor_of(specs, Role::query).name);
  EXPECT_EQ(value.slice->rows, 64);
  EXPECT_EQ(value.slice->first_row, 48);
  EXPECT_TRUE(expert_tensors(model, LayerId(0), ExpertId(3))[2].slice->transposed);
  EXPECT_FALSE(describe_family(variant("dbrx_gelu")).layers[0].feed_forward.router.renormalise);
  Json config = variant("dbrx_clip");
  config.erase("rope_parameters");
  config["attn_config"]["rope_theta"] = 500000.0;
  EXPECT_EQ(describe_family(config).rope.base, 500000.0) << "as published configs have it";
}

TEST(Families, DbrxRefusesHostileFields) {
  expect_refused("dbrx_clip", {{"/d_model", 0},
                               {"/d_model", "64"},
                               {"/n_heads", 3},
                               {"/n_heads", 32},
                               {"/n_layers", 0},
                               {"/max_seq_len", 0},
                               {"/head_dim", 16},
                               {"/tie_word_embeddings", true},
                               {"/attn_config", nullptr},
                               {"/attn_config", 7},
                               {"/attn_config/kv_n_heads", 3},
                               {"/attn_config/clip_qkv", -1},
                               {"/ffn_config", nullptr},
                               {"/ffn_config/moe_top_k", 5},
                               {"/ffn_config/moe_num_experts", 0},
                               {"/ffn_config/ffn_hidden_size", 0},
                               {"/ffn_config/moe_normalize_expert_weights", 2.0},
                               {"/ffn_config/ffn_act_fn/name", "cubic"}});
  Json config = variant("dbrx_clip");
  config["rope_parameters"] = {{"rope_type", "linear"}, {"factor", 2.0}};
  config["max_position_embeddings"] = 64;
  EXPECT_NE(family_error(config).find("rope_parameters"), std::string::npos);
}

TEST(Families, ArcticReadsTheLayersInputBesideAttention) {
  const ModelDescription model = describe_family(variant("arctic_dense_layers"));
  EXPECT_FALSE(model.layers[0].feed_forward.routed);
  const FeedForward& routed = model.layers[1].feed_forward;
  EXPECT_TRUE(routed.beside_attention);
  EXPECT_TRUE(routed.shared->own_norm);
  EXPECT_EQ(routed.shared->width, 32);
  EXPECT_FALSE(routed.router.renormalise) << "one expert keeps its share of the softmax";
  EXPECT_EQ(tensor_of(attention_tensors(model, LayerId(1)), Role::feed_forward_norm).name,
            "model.layers.1.post_attention_layernorm.weight");
  EXPECT_EQ(tensor_of(gate_tensors(model, LayerId(1)), Role::shared_norm).name,
            "model.layers.1.residual_layernorm.weight");
  EXPECT_FALSE(describe_family(variant("arctic_no_residual")).layers[0].feed_forward.shared);
}

TEST(Families, ArcticRefusesHostileFields) {
  expect_refused("arctic", {{"/moe_layer_frequency", 0},
                            {"/moe_layer_frequency", "2"},
                            {"/num_local_experts", 0},
                            {"/parallel_attn_mlp_res", 1},
                            {"/use_residual", false}});
}

}  // namespace
}  // namespace klotski
