#include "model/families/shapes.h"

#include <gtest/gtest.h>

#include <map>

#include "model/config.h"
#include "model/counts.h"

namespace klotski {
namespace {

ModelDescription describe(std::string_view shape, int64_t tokens = 300) {
  return parse_config(shape_config(shape, tokens).dump(), "config.json");
}

std::string refusal(std::string_view shape) {
  try {
    shape_config(shape, 300);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "accepted " << shape;
  return "";
}

// Billions of parameters, all and active, as the models' publishers state them.
TEST(Shapes, HaveTheirPublishedSizes) {
  const std::map<std::string_view, std::pair<double, double>> expected = {
      {"mixtral-8x7b", {46.7, 12.9}},
      {"mixtral-8x22b", {141, 39}},
      {"qwen3-30b-a3b", {30.5, 3.3}},
      {"qwen3-235b-a22b", {235, 22}},
      {"qwen1.5-moe-a2.7b", {14.3, 2.7}},
      {"olmoe-1b-7b", {6.9, 1.3}},
      {"gpt-oss-20b", {20.9, 4.19}},
      {"gpt-oss-120b", {116.8, 5.71}},
      {"deepseek-v2-lite", {15.7, 2.66}},  // 2.4 without embedding and output
      {"deepseek-v3", {671, 37.5}},        // 37 as published
      {"glm-4.5-air", {106.9, 13.4}},      // 12.2 without embedding and output
      {"minimax-m2", {228.7, 11.0}},       // 9.8 without embedding and output
      {"dbrx", {131.6, 36.5}},
      {"qwen3-next-80b-a3b", {79.7, 3.9}},  // 3 without embedding and output
      {"arctic", {476.9, 17.3}},            // 480 and 17 as published
      {"switch-base-128", {7.42, 0.224}},   // 7.4 as published
      {"nllb-moe-54b", {54.5, 3.75}},       // 54.5 as published
  };
  EXPECT_EQ(shape_names().size(), expected.size());
  for (const std::string_view name : shape_names()) {
    const ParameterCounts counts = count_parameters(describe(name));
    const auto [total, active] = expected.at(name);
    EXPECT_NEAR(static_cast<double>(counts.total()) / 1e9, total, 0.005 * total) << name;
    EXPECT_NEAR(static_cast<double>(counts.active) / 1e9, active, 0.02 * active) << name;
  }
}

TEST(Shapes, ByHand) {
  const ModelDescription model = describe("L=18,H=2048,F=7168,E=8,K=2");
  EXPECT_EQ(model.family, "mixtral");
  EXPECT_EQ(model.layer_count(), 18);
  EXPECT_EQ(model.hidden, 2048);
  EXPECT_EQ(model.vocabulary, 300);
  const Layer& layer = model.layers.front();
  EXPECT_EQ(layer.attention.grouped_heads().query_heads, 16);
  EXPECT_EQ(layer.attention.grouped_heads().kv_heads, 4);
  EXPECT_EQ(layer.attention.grouped_heads().head_dim, 128);
  EXPECT_EQ(layer.feed_forward.width, 7168);
  EXPECT_EQ(layer.feed_forward.experts, 8);
  EXPECT_EQ(layer.feed_forward.router.top_k, 2);
}

TEST(Shapes, ByHandWithEveryField) {
  const ModelDescription model =
      describe("K=1,E=3,F=20,H=48,L=2,heads=6,kv_heads=3,head_dim=16,vocab=1000");
  EXPECT_EQ(model.vocabulary, 1000);
  EXPECT_EQ(model.layers[0].attention.grouped_heads().query_heads, 6);
  EXPECT_EQ(model.layers[0].attention.grouped_heads().kv_heads, 3);
  EXPECT_EQ(model.layers[0].attention.grouped_heads().head_dim, 16);
}

TEST(Shapes, TheWordForAFormatOfExpertsComesLast) {
  for (const std::string word : {"compact", "mxfp4"}) {
    for (const std::string shape : {"mixtral-8x7b", "mixtral-8x7b,L=2", "L=1,H=64,F=8,E=4,K=2"}) {
      const std::string with_word = shape + "," + word;
      std::string_view rest = with_word;
      EXPECT_EQ(take_format(&rest), word);
      EXPECT_EQ(rest, shape);
      EXPECT_EQ(take_format(&rest), std::nullopt);
      EXPECT_EQ(rest, shape);
      refusal(with_word);
    }
    EXPECT_NE(shape_syntax().find("," + word), std::string_view::npos);
  }
}

TEST(Shapes, DefaultHeadsFitEveryWidth) {
  for (int64_t hidden = 2; hidden < 3000; hidden += 2) {
    const ModelDescription model = describe(fmt::format("L=1,H={},F=4,E=2,K=1", hidden));
    const GroupedHeads& attention = model.layers[0].attention.grouped_heads();
    EXPECT_LE(attention.query_width(), hidden);
    EXPECT_EQ(attention.query_heads % attention.kv_heads, 0);
  }
}

TEST(Shapes, ANameWithChanges) {
  const ModelDescription model = describe("qwen3-30b-a3b,L=2,F=32,E=16,K=4,vocab=500");
  EXPECT_EQ(model.family, "qwen3_moe");
  EXPECT_EQ(model.layer_count(), 2);
  EXPECT_EQ(model.hidden, 2048);
  EXPECT_EQ(model.vocabulary, 500);
  EXPECT_EQ(model.layers[1].feed_forward.width, 32);
  EXPECT_EQ(model.layers[1].feed_forward.experts, 16);
  EXPECT_EQ(model.layers[1].attention.grouped_heads().query_heads, 32);
  EXPECT_EQ(describe("qwen1.5-moe-a2.7b,shared=64").layers[0].feed_forward.shared->width, 64);
  EXPECT_EQ(describe("olmoe-1b-7b,H=64").layers[0].attention.grouped_heads().head_dim, 64);
}

TEST(Shapes, LatentAttentionHasHeadsAndNothingElseToChange) {
  const ModelDescription model = describe("deepseek-v3,L=4,H=96,F=16,E=16,K=4,heads=6,vocab=500");
  EXPECT_EQ(model.family, "deepseek_v3");
  EXPECT_EQ(model.hidden, 96);
  EXPECT_EQ(model.layers[0].attention.latent().query_heads, 6);
  EXPECT_FALSE(model.layers[2].feed_forward.routed);
  EXPECT_EQ(model.layers[3].feed_forward.experts, 16);
  EXPECT_EQ(model.layers[3].feed_forward.shared->width, 16);
  for (const char* field : {"kv_heads", "head_dim", "shared"}) {
    EXPECT_NE(refusal(fmt::format("deepseek-v2-lite,{}=2", field)).find("this architecture"),
              std::string::npos);
  }
  EXPECT_NE(refusal("deepseek-v3,E=12").find("n_group"), std::string::npos);
}

TEST(Shapes, RefusesEverythingElse) {
  for (const char* shape : {"",
                            "mixtral",
                            "L",
                            "L=1",
                            ",",
                            "mixtral-8x7b,",
                            "mixtral-8x7b,,L=1",
                            "mixtral-8x7b;L=1",
                            "L=1,H=64,F=4,E=2",
                            "L=1,H=64,F=4,E=2,K=3",
                            "L=1,H=64,F=4,E=2,K=0",
                            "L=1,H=63,F=4,E=2,K=1",
                            "L=1,H=64,F=4,E=2,K=1,heads=3,kv_heads=2",
                            "L=-1,H=64,F=4,E=2,K=1",
                            "L=1x,H=64,F=4,E=2,K=1",
                            "L=1,H=64,F=4,E=2,K=1,L=2",
                            "L=1,H=64,F=4,E=2,K=1,Z=2",
                            "L=1,H=64,F=4,E=2,K=1,shared=2",
                            "L=99999999999999999999,H=64,F=4,E=2,K=1",
                            "L=2000,H=64,F=4,E=2,K=1",
                            "L=1,H=64,F=4,E=2,K=1,L",
                            "L=1,H=64,F=4,E=2,K=1,L="}) {
    EXPECT_NE(refusal(shape).find("shape '"), std::string::npos) << shape;
  }
}

}  // namespace
}  // namespace klotski
