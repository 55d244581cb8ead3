#include "model/counts.h"

#include <gtest/gtest.h>

#include "model/config.h"
#include "model/families/shapes.h"

namespace klotski {
namespace {

// The published sizes of Mixtral-8x7B: 46.7 G parameters, 12.9 G of them used by a token.
TEST(CountParameters, MixtralHasItsPublishedSize) {
  const ModelDescription model = parse_config(
      R"({"model_type":"mixtral","vocab_size":32000,"hidden_size":4096,"intermediate_size":14336,
          "num_hidden_layers":32,"num_attention_heads":32,"num_key_value_heads":8,
          "num_local_experts":8,"num_experts_per_tok":2,"max_position_embeddings":32768,
          "rms_norm_eps":1e-5,"rope_theta":1e6})",
      "config.json");
  const ParameterCounts counts = count_parameters(model);
  EXPECT_EQ(counts.total(), 46'702'792'704);
  EXPECT_EQ(counts.active, 12'879'925'248);
  EXPECT_EQ(counts.expert, int64_t{32} * 8 * 3 * 4096 * 14336);
  EXPECT_EQ(kv_numbers_per_token(model), 32 * 2 * 8 * 128);
}

// A position of latent attention takes 512 + 64 numbers a layer, whatever the number of heads.
TEST(CountParameters, LatentAttentionKeepsOneVectorAPosition) {
  const ModelDescription model =
      parse_config(shape_config("deepseek-v3", 300).dump(), "config.json");
  EXPECT_EQ(kv_numbers_per_token(model), 61 * 576);
  const ParameterCounts counts = count_parameters(model);
  const int64_t experts = int64_t{58} * 256 * 3 * 7168 * 2048;
  EXPECT_EQ(counts.expert, experts);
  const int64_t attention = 7168 * 1536 + 1536 + 1536 * 128 * 192 + 7168 * 576 + 512 +
                            512 * 128 * 256 + 128 * 128 * 7168 + 7168;
  const int64_t dense = 2 * 129280 * 7168 + 7168 + 61 * (attention + 7168) +
                        int64_t{3} * 3 * 7168 * 18432 +
                        int64_t{58} * (3 * 7168 * 2048 + 256 * 7168 + 256);
  EXPECT_EQ(counts.dense, dense);
  EXPECT_EQ(counts.active, dense + experts / 256 * 8);
}

// Three of four layers keep a state in place of keys and values: 32 matrices of 128 x 128 and three
// inputs of a convolution of 8192 channels.
TEST(CountParameters, GatedDeltaNetsKeepAStateASequence) {
  const ModelDescription model =
      parse_config(shape_config("qwen3-next-80b-a3b", 300).dump(), "config.json");
  EXPECT_EQ(kv_numbers_per_token(model), 12 * 2 * 2 * 256);
  EXPECT_EQ(state_bytes_per_sequence(model), uint64_t{36} * 4 * (32 * 128 * 128 + 3 * 8192));
  const ParameterCounts counts = count_parameters(model);
  EXPECT_EQ(counts.expert, int64_t{48} * 512 * 3 * 2048 * 512);
  const int64_t delta = 2048 * (12288 + 64) + 8192 * 4 + 2 * 32 + 128 + 4096 * 2048;
  const int64_t attention = 2048 * (2 * 4096 + 2 * 512) + 2 * 256 + 4096 * 2048;
  const int64_t beside = 2 * 2048 + 512 * 2048 + 3 * 512 * 2048 + 2048;  // norms, router, shared
  EXPECT_EQ(counts.dense,
            2 * int64_t{151936} * 2048 + 2048 + 36 * delta + 12 * attention + 48 * beside);
}

}  // namespace
}  // namespace klotski
