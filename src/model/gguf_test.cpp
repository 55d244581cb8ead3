// Models of GGUF files: descriptions equal to those of config.json, where tensors lie, and files
// that are refused.

#include <gtest/gtest.h>

#include <cmath>

#include "model/config.h"
#include "model/stored_tensors.h"
#include "model/testing_gguf.h"
#include "model/unit_layout.h"
#include "weights/checkpoint.h"

namespace klotski {
namespace {

using namespace testing_gguf;
using testing_files::contains;
using testing_files::error_of;
using testing_files::ScratchFolder;

std::filesystem::path tiny(const std::string& name) {
  return std::filesystem::path(KLOTSKI_TEST_DATA) / "models" / name;
}

class GgufFamilies : public ::testing::TestWithParam<const char*> {};

TEST_P(GgufFamilies, DescriptionsEqualThoseOfConfigJson) {
  const ScratchFolder folder;
  const auto path = write_gguf_model(tiny(GetParam()), folder.path(), "m");
  const ModelDescription expected = read_config(tiny(GetParam()));
  const ModelDescription found = describe_model(Checkpoint::open(path));
  EXPECT_EQ(found.family, expected.family);
  EXPECT_EQ(found.vocabulary, expected.vocabulary);
  EXPECT_EQ(found.hidden, expected.hidden);
  EXPECT_EQ(found.max_positions, expected.max_positions);
  EXPECT_EQ(found.norm_epsilon, expected.norm_epsilon);
  EXPECT_EQ(found.tied_embeddings, expected.tied_embeddings);
  EXPECT_EQ(found.rope.base, expected.rope.base);
  EXPECT_EQ(found.rope.rotated_dims, expected.rope.rotated_dims);
  EXPECT_EQ(found.rope.interleaved, std::string(GetParam()) == "mixtral");
  EXPECT_EQ(found.begin_token, expected.begin_token);
  EXPECT_EQ(found.end_tokens, expected.end_tokens);
  ASSERT_EQ(found.layer_count(), expected.layer_count());
  for (size_t i = 0; i < found.layers.size(); ++i) {
    const GroupedHeads& heads = found.layers[i].attention.grouped_heads();
    const GroupedHeads& wanted = expected.layers[i].attention.grouped_heads();
    EXPECT_EQ(heads.query_heads, wanted.query_heads);
    EXPECT_EQ(heads.kv_heads, wanted.kv_heads);
    EXPECT_EQ(heads.head_dim, wanted.head_dim);
    EXPECT_EQ(heads.norm, wanted.norm);
    EXPECT_EQ(heads.window, wanted.window);
    EXPECT_EQ(heads.qkv_bias, wanted.qkv_bias);
    const FeedForward& part = found.layers[i].feed_forward;
    const FeedForward& other = expected.layers[i].feed_forward;
    EXPECT_EQ(part.experts, other.experts);
    EXPECT_EQ(part.width, other.width);
    EXPECT_EQ(part.router.top_k, other.router.top_k);
    EXPECT_EQ(part.router.renormalise, other.router.renormalise);
    EXPECT_EQ(part.shared.has_value(), other.shared.has_value());
  }
}

// An expert of a merged tensor is a range of its bytes.
TEST_P(GgufFamilies, ExpertsHaveTheSameBytesMergedAndAlone) {
  const ScratchFolder folder;
  const auto merged = write_gguf_model(tiny(GetParam()), folder.path(), "merged");
  const auto alone =
      write_gguf_model(tiny(GetParam()), folder.path(), "alone", {.merged = false, .shards = 3});
  const auto bytes_of_unit = [](const std::filesystem::path& path, const WeightUnit& unit) {
    const Checkpoint model = Checkpoint::open(path);
    const UnitLayout layout = layout_unit(describe_model(model), model, unit);
    std::vector<std::byte> buffer(layout.buffer_bytes);
    for (const UnitRead& read : layout.reads) {
      const auto file = model.file(read.shard);
      const uint64_t bytes = std::min(read.bytes, file->size() - read.offset);
      file->read_at(read.offset, std::span(buffer).subspan(read.at, bytes));
    }
    settle(layout, buffer.data());
    std::map<Role, std::string> contents;
    for (const PlacedTensor& tensor : layout.tensors) {
      const auto* data = reinterpret_cast<const char*>(layout.view(tensor, buffer.data()).data);
      contents[tensor.role] = std::string(data, layout.bytes_of(tensor));
    }
    return contents;
  };
  for (const WeightUnit& unit : units_of(read_config(tiny(GetParam())), UnitKind::expert)) {
    EXPECT_EQ(bytes_of_unit(merged, unit), bytes_of_unit(alone, unit));
  }
}

INSTANTIATE_TEST_SUITE_P(Tiny, GgufFamilies,
                         ::testing::Values("mixtral", "qwen2_moe", "qwen3_moe", "olmoe"),
                         [](const auto& model) { return std::string(model.param); });

class GgufLatent : public ::testing::TestWithParam<const char*> {};

TEST_P(GgufLatent, DescriptionsEqualThoseOfConfigJson) {
  const ModelDescription expected = read_config(tiny(GetParam()));
  for (const bool apart : {false, true}) {
    const ScratchFolder folder;
    const auto path = write_gguf_model(tiny(GetParam()), folder.path(), "m", {.apart = apart});
    const Checkpoint files = Checkpoint::open(path);
    const ModelDescription found = describe_model(files);
    EXPECT_EQ(found.family, expected.family);
    EXPECT_EQ(found.rope.rotated_dims, expected.rope.rotated_dims);
    EXPECT_TRUE(found.rope.interleaved);
    ASSERT_EQ(found.layer_count(), expected.layer_count());
    for (size_t i = 0; i < found.layers.size(); ++i) {
      LatentAttention latent = found.layers[i].attention.latent();
      EXPECT_EQ(latent.apart, apart);
      latent.apart = false;
      EXPECT_EQ(latent.shape(), expected.layers[i].attention.shape());
      EXPECT_EQ(latent.scale, expected.layers[i].attention.latent().scale);
      const FeedForward& part = found.layers[i].feed_forward;
      const FeedForward& other = expected.layers[i].feed_forward;
      EXPECT_EQ(part.routed, other.routed);
      EXPECT_EQ(part.width, other.width);
      EXPECT_EQ(part.selection_bias, other.selection_bias);
      EXPECT_EQ(part.shared ? part.shared->width : 0, other.shared ? other.shared->width : 0);
      EXPECT_EQ(part.router.score, other.router.score);
      EXPECT_EQ(part.router.groups, other.router.groups);
      EXPECT_EQ(part.router.groups_kept, other.router.groups_kept);
      EXPECT_EQ(part.router.renormalise, other.router.renormalise);
      EXPECT_EQ(part.router.scale, other.router.scale);
    }
    EXPECT_NO_THROW(UnitLayouts(found, files));
  }
}

INSTANTIATE_TEST_SUITE_P(Tiny, GgufLatent, ::testing::Values("deepseek_v2", "deepseek_v3"),
                         [](const auto& model) { return std::string(model.param); });

using Pairs = std::vector<std::string>;

// A model whose metadata were changed, described. `more_tensor` names a tensor to add.
ModelDescription described_with(const std::string& model, const std::function<void(Pairs&)>& change,
                                const std::string& more_tensor = "") {
  const ScratchFolder folder;
  const Json config = parse_json(read_text_file(tiny(model) / "config.json", 1 << 20), "config");
  Pieces pieces;
  pieces.pairs = gguf_metadata(config);
  change(pieces.pairs);
  for (const auto& [name, matrix] : gguf_tensors(Checkpoint::open(tiny(model)), config)) {
    pieces.add(name, matrix.shape, matrix.dtype == DType::F32 ? 0 : 30, matrix.bytes);
  }
  if (!more_tensor.empty()) pieces.add(more_tensor, {1}, 0, "1234");
  testing_files::write_file(folder.path() / "m.gguf", pieces.file());
  return describe_model(Checkpoint::open(folder.path() / "m.gguf"));
}

std::string refused_with(const std::function<void(Pairs&)>& change,
                         const std::string& more_tensor = "") {
  return error_of([&] { described_with("olmoe", change, more_tensor); });
}

// Metadata that end with the given pairs.
std::function<void(Pairs&)> and_pairs(const Pairs& more) {
  return [more](Pairs& pairs) { pairs.insert(pairs.end(), more.begin(), more.end()); };
}

TEST(GgufDescription, RefusesWhatItDoesNotKnow) {
  EXPECT_TRUE(contains(
      refused_with([](Pairs& pairs) { pairs[0] = text_pair("general.architecture", "bert"); }),
      "expected one of arctic, dbrx, deepseek2, ernie4_5-moe, glm4moe, gpt-oss, granitemoe, "
      "hunyuan-moe, llama4, minimax-m2, llama, olmoe, phimoe, qwen2moe, qwen3moe, found 'bert'"));
  EXPECT_TRUE(contains(refused_with([](Pairs& pairs) { pairs.erase(pairs.begin()); }),
                       "general.architecture"));
  EXPECT_TRUE(contains(
      refused_with([](Pairs& pairs) { pairs[0] = text_pair("general.architecture", "llama"); }),
      "llama.expert_count: expected"));
  const auto with_pair = [](const std::string& pair) { return refused_with(and_pairs({pair})); };
  EXPECT_TRUE(contains(with_pair(text_pair("olmoe.rope.scaling.type", "longrope")),
                       "or longrope with its factors as tensors, found 'longrope'"));
  EXPECT_TRUE(contains(with_pair(text_pair("olmoe.rope.scaling.type", "linear")), "factor"));
  EXPECT_TRUE(contains(with_pair(u32_pair("olmoe.rope.dimension_count", 8)),
                       "expected all 16 numbers of a head, found 8"));
  EXPECT_TRUE(contains(with_pair(f32_pair("olmoe.attention.clamp_kqv", -1)), "clip_qkv"));
  EXPECT_TRUE(contains(with_pair(u32_pair("tokenizer.ggml.eot_token_id", 256)), "eos_token_id"));
}

TEST(GgufDescription, TheRopeBaseIsThatOfGgufFilesWhereNoneIsStated) {
  const auto without_base = [](Pairs& pairs) {
    std::erase_if(pairs, [](const std::string& pair) { return contains(pair, "rope.freq_base"); });
  };
  for (const char* model : {"mixtral", "qwen2_moe", "qwen3_moe", "olmoe"}) {
    EXPECT_EQ(described_with(model, without_base).rope.base, 10'000.0) << model;
  }
}

TEST(GgufDescription, AFactorWithoutATypeIsLinearScaling) {
  for (const char* key : {"olmoe.rope.scaling.factor", "olmoe.rope.scale_linear"}) {
    const Rope rope = described_with("olmoe", and_pairs({f32_pair(key, 4)})).rope;
    EXPECT_EQ(rope.kind, RopeKind::linear) << key;
    EXPECT_EQ(rope.factor, 4) << key;
    for (const float none : {0.0f, 1.0f}) {
      EXPECT_EQ(described_with("olmoe", and_pairs({f32_pair(key, none)})).rope.kind,
                RopeKind::plain);
    }
  }
  const std::string four = f32_pair("olmoe.rope.scaling.factor", 4);
  const std::string none = text_pair("olmoe.rope.scaling.type", "none");
  EXPECT_EQ(described_with("olmoe", and_pairs({four, none})).rope.kind, RopeKind::plain);
  const std::string yarn = text_pair("olmoe.rope.scaling.type", "yarn");
  const Rope rope =
      described_with("olmoe",
                     and_pairs({four, yarn, f32_pair("olmoe.rope.scaling.yarn_beta_fast", 16)}))
          .rope;
  EXPECT_EQ(rope.kind, RopeKind::yarn);
  EXPECT_EQ(rope.factor, 4);
  EXPECT_EQ(rope.beta_fast, 16);
}

TEST(GgufDescription, RefusesScalingThatItDoesNotCompute) {
  const Pairs yarn = {text_pair("olmoe.rope.scaling.type", "yarn"),
                      f32_pair("olmoe.rope.scaling.factor", 4)};
  for (const char* key :
       {"attn_factor", "yarn_attn_factor", "yarn_ext_factor", "yarn_log_multiplier"}) {
    const std::string name = std::string("olmoe.rope.scaling.") + key;
    Pairs pairs = yarn;
    pairs.push_back(f32_pair(name, 0.5));
    EXPECT_TRUE(contains(refused_with(and_pairs(pairs)), name)) << key;
    pairs.back() = f32_pair(name, contains(name, "log") ? 0.0f : 1.0f);
    EXPECT_EQ(described_with("olmoe", and_pairs(pairs)).rope.kind, RopeKind::yarn);
  }
  EXPECT_TRUE(contains(refused_with(and_pairs({f32_pair("olmoe.rope.scaling.attn_factor", 2)})),
                       "olmoe.rope.scaling.attn_factor: expected 1"));
}

TEST(GgufDescription, RefusesTensorsThatNothingReads) {
  for (const char* name : {"rope_factors_short.weight", "blk.0.attn_q.scale", "blk.9.attn_q.weight",
                           "blk.0.attn_norm.bias", "output.bias", "blk.0.ffn_gate_inp.bias",
                           "blk.0.exp_probs_b.bias", "blk.0.ffn_gate.99.weight"}) {
    EXPECT_TRUE(contains(refused_with([](Pairs&) {}, name), std::string("tensor '") + name))
        << name;
  }
  EXPECT_TRUE(contains(error_of([] {
                         described_with(
                             "mixtral", [](Pairs&) {}, "blk.1.attn_q_norm.weight");
                       }),
                       "tensor 'blk.1.attn_q_norm.weight'"));
  EXPECT_TRUE(contains(error_of([] {
                         described_with(
                             "mixtral", [](Pairs&) {}, "blk.0.attn_q.bias");
                       }),
                       "tensor 'blk.0.attn_q.bias'"));
}

// Replaces the pair of the same key: a pair begins with the length of its key and the key.
void replace_pair(Pairs& pairs, const std::string& by) {
  uint64_t length = 0;
  std::memcpy(&length, by.data(), sizeof(length));
  const std::string key = by.substr(0, sizeof(length) + length);
  std::erase_if(pairs, [&](const std::string& pair) { return pair.starts_with(key); });
  pairs.push_back(by);
}

TEST(GgufDescription, FactorsOfRopeAreChecked) {
  const auto with = [](const std::string& tensor) { return refused_with([](Pairs&) {}, tensor); };
  EXPECT_TRUE(contains(with("rope_freqs.weight"), "rope_scaling.short_factor"));
  EXPECT_TRUE(contains(with("rope_factors_long.weight"), "'rope_factors_short.weight'"));
  const auto linear = and_pairs(
      {text_pair("olmoe.rope.scaling.type", "linear"), f32_pair("olmoe.rope.scaling.factor", 2)});
  EXPECT_TRUE(contains(refused_with(linear, "rope_freqs.weight"),
                       "olmoe.rope.scaling.type: expected none or longrope"));
}

TEST(GgufDescription, LayersThatPredictFurtherTokensAreLeftOut) {
  const auto layers = static_cast<uint32_t>(read_config(tiny("olmoe")).layer_count());
  const auto with_further = [&](uint32_t further) {
    return [=](Pairs& pairs) {
      replace_pair(pairs, u32_pair("olmoe.block_count", layers + 1));
      replace_pair(pairs, u32_pair("olmoe.nextn_predict_layers", further));
    };
  };
  const std::string name = fmt::format("blk.{}.nextn.eh_proj.weight", layers);
  EXPECT_EQ(described_with("olmoe", with_further(1), name).layer_count(), layers);
  EXPECT_TRUE(contains(refused_with(with_further(0), name), "expected a tensor"));
  EXPECT_TRUE(contains(refused_with(with_further(layers + 1), name), "olmoe.block_count"));
}

TEST(GgufDescription, AWindowOfNoPositionsIsNone) {
  const auto with_window = [](uint32_t positions) {
    return [=](Pairs& pairs) {
      replace_pair(pairs, u32_pair("llama.attention.sliding_window", positions));
    };
  };
  const auto window_of = [&](uint32_t positions) {
    const ModelDescription model = described_with("mixtral", with_window(positions));
    return model.layers[0].attention.grouped_heads().window;
  };
  EXPECT_EQ(window_of(0), 0);
  EXPECT_EQ(window_of(3), 3);
}

TEST(GgufDescription, RefusesRoutingAndScalesThatItDoesNotCompute) {
  const auto truth = [](const char* key, char value) {
    return pair_of(key, kBool, std::string(1, value));
  };
  const Pairs refused = {
      f32_pair("olmoe.expert_weights_scale", 2.5), u32_pair("olmoe.expert_gating_func", 2),
      truth("olmoe.expert_weights_norm", 1), f32_pair("olmoe.attention.scale", 0.5)};
  const char* keys[] = {"olmoe.expert_weights_scale", "olmoe.expert_gating_func",
                        "olmoe.expert_weights_norm", "olmoe.attention.scale"};
  for (size_t i = 0; i < refused.size(); ++i) {
    EXPECT_TRUE(contains(refused_with(and_pairs({refused[i]})), keys[i])) << keys[i];
  }
  EXPECT_NO_THROW(described_with(
      "olmoe", and_pairs({f32_pair(keys[0], 1), u32_pair(keys[1], 1), truth(keys[2], 0),
                          f32_pair(keys[3], 0.25)})));  // heads of 16 numbers
}

// Matrices of any role may be of a block format, vectors may not.
TEST(GgufDescription, VectorsAreNotQuantised) {
  const ScratchFolder folder;
  Pieces pieces;
  pieces.add("matrix", {3, 2, 32}, 2, std::string(3 * 2 * 18, 'x'));
  pieces.add("vector", {32}, 2, std::string(18, 'x'));
  testing_files::write_file(folder.path() / "m.gguf", pieces.file());
  const Checkpoint model = Checkpoint::open(folder.path() / "m.gguf");
  TensorSpec spec{Role::expert_gate, "matrix", {2, 32}};
  spec.slice = {.matrices = 3, .index = 1, .rows = 2};
  const StoredTensor found = find_stored(model, UnitKind::attention, spec);
  EXPECT_EQ(found.dtype, DType::Q4_0);
  EXPECT_EQ(found.numbers.offset, model.require("matrix").offset + 36);
  EXPECT_EQ(found.numbers.bytes, 36u);
  EXPECT_TRUE(
      contains(error_of([&] {
                 find_stored(model, UnitKind::attention, {Role::attention_norm, "vector", {32}});
               }),
               "expected type F32, F16 or BF16 for a vector, found Q4_0"));
  spec.shape = {2, 64};
  EXPECT_TRUE(contains(error_of([&] { find_stored(model, UnitKind::expert, spec); }),
                       "the metadata implies Q4_0 of shape [3, 2, 64], found Q4_0 of shape"));
}

// A tenth of mscale_all_dim stands for both fields of a config.json.
TEST(GgufLatentRope, SharpensScores) {
  const auto yarn = and_pairs({text_pair("deepseek2.rope.scaling.type", "yarn"),
                               f32_pair("deepseek2.rope.scaling.factor", 40),
                               u32_pair("deepseek2.rope.scaling.original_context_length", 64),
                               f32_pair("deepseek2.rope.scaling.yarn_log_multiplier", 0.0707f)});
  const ModelDescription model = described_with("deepseek_v2", yarn);
  const double sharper = 0.1 * 0.707 * std::log(40.0) + 1.0;
  EXPECT_NEAR(model.layers[0].attention.latent().scale, sharper * sharper / std::sqrt(32.0), 1e-6);
  EXPECT_NEAR(model.rope.attention_factor, 1.0, 1e-9);
}

TEST(GgufLatentMetadata, HostileValuesAreRefusedByName) {
  struct Bad {
    std::string pair;
    const char* says;
  };
  const std::string arch = "deepseek2.";
  for (const Bad& bad :
       std::vector<Bad>{{u32_pair(arch + "rope.dimension_count", 0), "rope.dimension_count"},
                        {u32_pair(arch + "rope.dimension_count", 32), "attention.key_length"},
                        {u32_pair(arch + "attention.value_length", 0), "attention.value_length"},
                        {u32_pair(arch + "attention.kv_lora_rank", 0), "kv_lora_rank"},
                        {u32_pair(arch + "attention.q_lora_rank", 0), "q_lora_rank"},
                        {u32_pair(arch + "expert_group_count", 3), "n_group"},
                        {u32_pair(arch + "expert_group_used_count", 9), "topk_group"},
                        {u32_pair(arch + "expert_gating_func", 3), "expert_gating_func"},
                        {f32_pair(arch + "expert_weights_scale", -1), "routed_scaling_factor"},
                        {u32_pair(arch + "expert_shared_count", 1u << 30), "n_shared_experts"}}) {
    const std::string message = error_of([&] {
      described_with("deepseek_v3", [&](Pairs& pairs) { replace_pair(pairs, bad.pair); });
    });
    EXPECT_TRUE(contains(message, bad.says)) << bad.says << " gave: " << message;
  }
}

}  // namespace
}  // namespace klotski
