// Families with an encoder: what a config becomes, names of tensors in both halves, hostile values.

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "model/config.h"
#include "model/counts.h"
#include "model/tensors.h"

namespace klotski {
namespace {

Json encoder_config(const std::string& name) {
  const std::string path = std::string(KLOTSKI_TEST_DATA "/models/") + name + "/config.json";
  return parse_json(read_text_file(path, 1 << 20), "config.json");
}

ModelDescription describe_encoder(const Json& config) {
  return parse_config(config.dump(), "config.json");
}

const TensorSpec* find_tensor(const std::vector<TensorSpec>& specs, Role role) {
  for (const TensorSpec& spec : specs) {
    if (spec.role == role) return &spec;
  }
  return nullptr;
}

struct HostileField {
  const char* key;
  Json value;
};

void expect_field_refused(const std::string& name, const std::vector<HostileField>& cases) {
  for (const HostileField& bad : cases) {
    Json config = encoder_config(name);
    config[bad.key] = bad.value;
    try {
      describe_encoder(config);
      ADD_FAILURE() << name << " accepted " << bad.key << " = " << bad.value.dump();
    } catch (const Error& error) {
      const std::string message = error.what();
      EXPECT_EQ(error.kind(), ErrorKind::bad_model) << message;
      EXPECT_NE(message.find(bad.key), std::string::npos) << bad.key << " gave: " << message;
    }
  }
}

TEST(EncoderDecoder, SwitchHasBothHalves) {
  const ModelDescription model = describe_encoder(encoder_config("switch"));
  ASSERT_TRUE(model.encoder);
  EXPECT_EQ(model.encoder->layers, 4);
  EXPECT_EQ(model.encoder->start_token, 0);
  EXPECT_FALSE(model.encoder->translates);
  EXPECT_EQ(model.layer_count(), 8);
  EXPECT_FLOAT_EQ(model.logit_scale, 1.0f / 8.0f);
  for (int64_t i = 0; i < 8; ++i) {
    const Layer& layer = model.layer(LayerId(i));
    const GroupedHeads& heads = layer.attention.grouped_heads();
    EXPECT_EQ(heads.sees_all, i < 4);
    EXPECT_EQ(heads.crosses, i >= 4);
    EXPECT_EQ(heads.relative_bias->both_ways, i < 4);
    EXPECT_EQ(heads.scale, 1.0f);
    EXPECT_EQ(layer.feed_forward.routed, i % 2 == 1);
    EXPECT_FALSE(layer.feed_forward.gated);
  }
  const PassLayers encoding = model.pass_layers(true);
  EXPECT_EQ(encoding.first, 0);
  EXPECT_EQ(encoding.end, 8);
  EXPECT_TRUE(encoding.feeds_forward(LayerId(3)));
  EXPECT_FALSE(encoding.feeds_forward(LayerId(4)));
  EXPECT_EQ(model.pass_layers(false).first, 4);
}

TEST(EncoderDecoder, NamesCountLayersInEachHalf) {
  const ModelDescription model = describe_encoder(encoder_config("switch"));
  const auto name = [&](int64_t layer, Role role) {
    const std::vector<TensorSpec> specs = attention_tensors(model, LayerId(layer));
    const TensorSpec* spec = find_tensor(specs, role);
    return spec ? spec->name : std::string();
  };
  EXPECT_EQ(name(2, Role::query), "encoder.block.2.layer.0.SelfAttention.q.weight");
  EXPECT_EQ(name(2, Role::cross_query), "");
  EXPECT_EQ(name(6, Role::query), "decoder.block.2.layer.0.SelfAttention.q.weight");
  EXPECT_EQ(name(6, Role::cross_query), "decoder.block.2.layer.1.EncDecAttention.q.weight");
  EXPECT_EQ(name(6, Role::encoder_norm), "encoder.final_layer_norm.weight");
  EXPECT_EQ(expert_tensors(model, LayerId(7), ExpertId(5))[0].name,
            "decoder.block.3.layer.2.mlp.experts.expert_5.wi.weight");
  EXPECT_EQ(expert_tensors(model, LayerId(0), ExpertId(0))[1].name,
            "encoder.block.0.layer.1.mlp.wo.weight");
  EXPECT_EQ(find_tensor(model_tensors(model), Role::final_norm)->name,
            "decoder.final_layer_norm.weight");
}

// Layers have tensors in common: each unit has them, parameters are counted once.
TEST(EncoderDecoder, CommonTensorsAreCountedOnce) {
  const ModelDescription model = describe_encoder(encoder_config("switch"));
  for (int64_t i = 0; i < 8; ++i) {
    const auto specs = attention_tensors(model, LayerId(i));
    EXPECT_EQ(find_tensor(specs, Role::position_bias)->repeated, i % 4 != 0);
    if (i >= 4) {
      EXPECT_EQ(find_tensor(specs, Role::encoder_norm)->repeated, i != 4);
    }
  }
  // Elements of the stored tensors of the fixture, which is bf16.
  EXPECT_EQ(count_parameters(model).total(), 806'528);
}

TEST(EncoderDecoder, NllbHasBiasesSinusoidsAndScaledExperts) {
  Json config = encoder_config("nllb_moe");
  config["moe_token_dropout"] = 0.25;
  const ModelDescription model = describe_encoder(config);
  ASSERT_TRUE(model.encoder);
  EXPECT_TRUE(model.encoder->translates);
  EXPECT_EQ(model.encoder->start_token, 2);
  EXPECT_EQ(model.first_sinusoid, 2);
  EXPECT_EQ(model.embedding_scale, 8.0f);
  EXPECT_EQ(model.logit_scale, 1.0f);
  const FeedForward& routed = model.layer(LayerId(5)).feed_forward;
  EXPECT_TRUE(routed.routed);
  EXPECT_EQ(routed.router.top_k, 2);
  EXPECT_FLOAT_EQ(routed.router.scale, 0.75f);
  EXPECT_TRUE(model.layer(LayerId(4)).feed_forward.expert_bias);
  EXPECT_EQ(expert_tensors(model, LayerId(4), ExpertId(0))[3].name,
            "model.decoder.layers.0.ffn.fc2.bias");
}

// The mask of the first choice instead of the experts, in transformers 5.
TEST(EncoderDecoder, FaultsOfReferencesAreRepeatedOnlyWhereTheyAre) {
  ModelDescription model = describe_encoder(encoder_config("nllb_moe"));
  for (const char* version : {"", "4.57.1"}) {
    EXPECT_TRUE(repeat_fault(model, version).empty());
    EXPECT_TRUE(model.layer(LayerId(1)).feed_forward.computing.empty());
  }
  EXPECT_FALSE(repeat_fault(model, "5.17.0").empty());
  EXPECT_EQ(model.layer(LayerId(1)).feed_forward.computing,
            (std::vector<ExpertId>{ExpertId(1), ExpertId(0)}));
  ModelDescription other = describe_encoder(encoder_config("switch"));
  EXPECT_TRUE(repeat_fault(other, "5.17.0").empty());
}

TEST(EncoderDecoder, SparseStepsMayBeCountsOfLayers) {
  Json config = encoder_config("switch");
  config.erase("encoder_sparse_step");
  config["num_sparse_encoder_layers"] = 4;
  config["decoder_sparse_step"] = 0;
  const ModelDescription model = describe_encoder(config);
  for (int64_t i = 0; i < 8; ++i) {
    EXPECT_EQ(model.layer(LayerId(i)).feed_forward.routed, i < 4);
  }
}

// NLLB's routed layers are the last of every step, Switch's the second.
TEST(EncoderDecoder, FamiliesBeginAtOtherLayers) {
  for (const auto& [name, first] : {std::pair("nllb_moe", 3), std::pair("switch", 1)}) {
    Json config = encoder_config(name);
    config[std::string(name) == "switch" ? "num_layers" : "encoder_layers"] = 8;
    config["encoder_sparse_step"] = 4;
    const ModelDescription model = describe_encoder(config);
    for (int64_t i = 0; i < 8; ++i) {
      EXPECT_EQ(model.layer(LayerId(i)).feed_forward.routed, i % 4 == first) << name << " " << i;
    }
  }
}

TEST(EncoderDecoder, HostileFieldsAreRefused) {
  expect_field_refused("switch", {{"d_model", 0},
                                  {"d_kv", 1 << 18},
                                  {"num_heads", -1},
                                  {"num_layers", 0},
                                  {"num_decoder_layers", 1 << 20},
                                  {"num_experts", 0},
                                  {"d_ff", "wide"},
                                  {"dense_act_fn", "tan"},
                                  {"decoder_start_token_id", 256},
                                  {"encoder_sparse_step", -1},
                                  {"expert_capacity", 0},
                                  {"layer_norm_epsilon", 2},
                                  {"relative_attention_num_buckets", 3},
                                  {"relative_attention_max_distance", 16},
                                  {"router_dtype", "bfloat16"}});
  expect_field_refused("nllb_moe", {{"d_model", 63},
                                    {"encoder_attention_heads", 7},
                                    {"decoder_layers", 0},
                                    {"encoder_ffn_dim", 0},
                                    {"num_experts", 1},
                                    {"moe_eval_capacity_token_fraction", 0.5},
                                    {"moe_token_dropout", 1.5},
                                    {"second_expert_policy", "random"},
                                    {"router_dtype", "float16"},
                                    {"pad_token_id", -3},
                                    {"decoder_start_token_id", 1000}});
}

TEST(RelativeBias, BucketsAreExactNearbyAndLogarithmicBeyond) {
  const RelativeBias both{.buckets = 32, .most_distance = 128, .both_ways = true};
  EXPECT_EQ(both.bucket(0), 0);
  EXPECT_EQ(both.bucket(-7), 7);
  EXPECT_EQ(both.bucket(7), 23);
  EXPECT_EQ(both.bucket(-8), 8);
  EXPECT_EQ(both.bucket(-127), 15);
  EXPECT_EQ(both.bucket(5000), 31);
  const RelativeBias back{.buckets = 32, .most_distance = 128};
  EXPECT_EQ(back.bucket(3), 0);
  EXPECT_EQ(back.bucket(-15), 15);
  EXPECT_EQ(back.bucket(-16), 16);
  EXPECT_EQ(back.bucket(-128), 31);
}

}  // namespace
}  // namespace klotski
