#include "probe/model.h"

#include <gtest/gtest.h>

#include <chrono>
#include <set>
#include <vector>

#include "base/bytes.h"
#include "kernels/testing.h"
#include "probe/repeating.h"
#include "probe/testing.h"

namespace klotski {
namespace {

using testing::all_of_type;
using testing::large_layer;
using testing::TinyModel;

ProbeLimits quick() {
  ProbeLimits limits;
  limits.weight_bytes = 0;  // one copy: it may stay in a cache
  limits.most_rows = 16;
  limits.longest_call_seconds = 60;  // no size is left out on a busy machine
  return limits;
}

std::vector<const Curve*> curves_of(const ModelProfile& profile) {
  std::vector<const Curve*> curves{&profile.embed, &profile.logits};
  for (const LayerProfile& kind : profile.kinds) {
    curves.insert(curves.end(),
                  {&kind.attention_products, &kind.attend_decode, &kind.attend_prefill, &kind.route,
                   &kind.expert, &kind.expert_arranged, &kind.combine});
  }
  return curves;
}

TEST(MeasureModel, EveryFamilyOfTestModels) {
  for (const char* name :
       {"mixtral", "olmoe", "qwen2_moe", "qwen3_moe", "variants/qwen3_window",
        "variants/mixtral_tied_gelu", "variants/olmoe_clip_bias", "gpt_oss", "llama4_text",
        "deepseek_v2", "deepseek_v3", "variants/gpt_oss_mxfp4", "variants/qwen3_next",
        "variants/qwen3_next_states_alone", "switch", "nllb_moe"}) {
    const TinyModel tiny(name);
    Tier tier("test", 64 * kMiB);
    const auto start = std::chrono::steady_clock::now();
    const ModelProfile profile = measure_model(tiny.description, tiny.types(), cpu_processor(),
                                               Precision::bf16, tier, quick());
    const double all_calls = seconds_since(start);
    EXPECT_EQ(profile.kind_of_layer.size(), tiny.description.layers.size());
    for (const Curve* curve : curves_of(profile)) {
      ASSERT_FALSE(curve->empty()) << name;
      for (const double seconds : curve->seconds()) EXPECT_LT(seconds, all_calls) << name;
    }
    EXPECT_EQ(profile.kinds[0].expert.sizes().size(), 5u);  // 1, 2, 4, 8 and 16 rows
    for (int64_t layer = 0; layer < tiny.description.layer_count(); ++layer) {
      const bool decodes_encoded =
          tiny.description.encoder && layer >= tiny.description.encoder_layers();
      EXPECT_EQ(!profile.of_layer(layer).attend_encoded.empty(), decodes_encoded) << name;
    }
    EXPECT_EQ(profile.kinds[0].attend_decode.sizes().front(), 16);
    EXPECT_EQ(tier.used_bytes(), 0u);
  }
}

// Weights and caches take as much as there is: attention to an encoder's output is measured when
// those of the layer's own attention are gone.
TEST(MeasureModel, AttentionToAnEncoderFitsWhereTheLayersOwnDoes) {
  const TinyModel tiny("switch");
  ProbeLimits limits = quick();
  limits.weight_bytes = kGiB;
  Tier tier("test", 8 * kMiB);
  EXPECT_NO_THROW(measure_model(tiny.description, tiny.types(), cpu_processor(), Precision::bf16,
                                tier, limits));
}

// Whether times grow with the sizes, by less than they should: someone else may be computing.
bool grows(const ModelProfile& profile) {
  const LayerProfile& kind = profile.of_layer(0);
  for (const Curve* curve :
       {&kind.expert, &kind.attention_products, &kind.route, &kind.combine, &profile.logits}) {
    if (curve->at(64) <= 4 * curve->at(1)) return false;
  }
  return kind.attend_decode.at(256) > kind.attend_decode.at(16) &&
         kind.attend_prefill.at(256) > 16 * kind.attend_prefill.at(16);
}

TEST(MeasureModel, MoreRowsTakeLonger) {
  const TinyModel tiny("olmoe");  // tokens of this model see all positions
  ProbeLimits limits = quick();
  limits.most_rows = 64;
  bool grown = false;
  for (int attempt = 0; attempt < 10 && !grown; ++attempt) {
    Tier tier("test", 64 * kMiB);
    grown = grows(measure_model(tiny.description, tiny.types(), reference_processor(),
                                Precision::f32, tier, limits));
  }
  EXPECT_TRUE(grown);
}

TEST(MeasureModel, LayersOfOneShapeAreMeasuredOnce) {
  const TinyModel tiny("variants/qwen2_windows_dense");
  const ModelDescription& model = tiny.description;
  Tier tier("test", 64 * kMiB);
  const ModelProfile profile =
      measure_model(model, tiny.types(), cpu_processor(), Precision::bf16, tier, quick());
  std::set<std::string> shapes;
  for (const Layer& layer : model.layers) shapes.insert(layer_shape(layer));
  ASSERT_GT(shapes.size(), 1u);
  EXPECT_EQ(profile.kinds.size(), shapes.size());
  for (size_t a = 0; a < model.layers.size(); ++a) {
    for (size_t b = 0; b < model.layers.size(); ++b) {
      EXPECT_EQ(profile.kind_of_layer[a] == profile.kind_of_layer[b],
                layer_shape(model.layers[a]) == layer_shape(model.layers[b]));
    }
  }
}

TEST(MeasureModel, ShapesThatDifferAreDifferentKinds) {
  const Layer layer = TinyModel("qwen2_moe").description.layers[0];
  const auto differs = [&](auto change) {
    Layer changed = layer;
    change(changed);
    EXPECT_NE(layer_shape(changed), layer_shape(layer));
  };
  EXPECT_EQ(layer_shape(Layer(layer)), layer_shape(layer));
  differs([](Layer& l) { l.attention.grouped_heads().window += 1; });
  differs([](Layer& l) { l.attention.grouped_heads().kv_heads *= 2; });
  differs([](Layer& l) { l.attention.grouped_heads().sinks = !l.attention.grouped_heads().sinks; });
  differs([](Layer& l) { l.feed_forward.width += 1; });
  differs([](Layer& l) { l.feed_forward.router.top_k += 1; });
  differs([](Layer& l) { l.feed_forward.shared.reset(); });
  differs([](Layer& l) { l.feed_forward.routed = false; });
}

// A large model's layer in a small memory: narrower matrices, fewer rows, never a refusal.
TEST(MeasureModel, StaysWithinItsMemory) {
  const ModelDescription model = large_layer();
  Tier tier("test", ProbeLimits::kLeastBytes);
  ProbeLimits limits;
  limits.longest_call_seconds = 0.02;
  const ModelProfile profile = measure_model(model, all_of_type(DType::BF16), cpu_processor(),
                                             Precision::bf16, tier, limits);
  for (const Curve* curve : curves_of(profile)) EXPECT_FALSE(curve->empty());
  EXPECT_LE(tier.peak_bytes(), tier.limit_bytes());
  EXPECT_GT(tier.peak_bytes(), tier.limit_bytes() / 4);
}

}  // namespace
}  // namespace klotski
