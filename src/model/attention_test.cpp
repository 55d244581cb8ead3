#include "model/attention.h"

#include <gtest/gtest.h>

#include "model/counts.h"
#include "model/description.h"

namespace klotski {
namespace {

GroupedHeads narrow_values() {
  GroupedHeads heads;
  heads.query_heads = 8;
  heads.kv_heads = 4;
  heads.head_dim = 192;
  heads.value_dim = 128;
  return heads;
}

TEST(Attention, KeepsKeysAndValuesOfTheirOwnWidths) {
  const Attention attention = narrow_values();
  EXPECT_EQ(attention.cache(), (CacheLayout{{{"keys", 4 * 192}, {"values", 4 * 128}}}));
  EXPECT_EQ(attention.cache().numbers_per_position(), 4 * (192 + 128));
  EXPECT_EQ(attention.cache().state_bytes, 0u);
  EXPECT_EQ(attention.output_width(), 8 * 128);
  EXPECT_EQ(attention.query_head_width(), 192);
}

TEST(Attention, InputsAreQueriesAndThenWhatTheCacheKeeps) {
  const Attention attention = narrow_values();
  EXPECT_EQ(attention.queries(), (std::vector<RowPart>{{"queries", 8 * 192}}));
  EXPECT_EQ(attention.inputs(),
            (std::vector<RowPart>{{"queries", 8 * 192}, {"keys", 4 * 192}, {"values", 4 * 128}}));
  int64_t width = 0;
  for (const RowPart& part : attention.inputs()) width += part.width;
  EXPECT_EQ(attention.input_width(), width);
}

TEST(Attention, ValuesAreAsWideAsKeysUnlessSaid) {
  GroupedHeads heads = narrow_values();
  heads.value_dim.reset();
  EXPECT_EQ(Attention(heads).cache(), (CacheLayout{{{"keys", 4 * 192}, {"values", 4 * 192}}}));
  EXPECT_EQ(Attention(heads).output_width(), 8 * 192);
  EXPECT_NE(Attention(heads).shape(), Attention(narrow_values()).shape());
  heads.value_dim = heads.head_dim;
  GroupedHeads unsaid = heads;
  unsaid.value_dim.reset();
  EXPECT_EQ(Attention(heads).shape(), Attention(unsaid).shape());
}

TEST(Attention, HalvesHeadsAsLongAsBothAreEven) {
  Attention attention = narrow_values();
  EXPECT_TRUE(attention.halve());
  EXPECT_TRUE(attention.halve());
  EXPECT_EQ(attention.grouped_heads().query_heads, 2);
  EXPECT_EQ(attention.grouped_heads().kv_heads, 1);
  EXPECT_FALSE(attention.halve());
}

LatentAttention latent_heads() {
  LatentAttention latent;
  latent.query_heads = 6;
  latent.query_rank = 40;
  latent.latent_rank = 512;
  latent.plain_dims = 128;
  latent.rotated_dims = 64;
  latent.value_dim = 100;
  return latent;
}

TEST(Attention, LatentKeepsOneVectorForAllHeads) {
  const Attention attention = latent_heads();
  EXPECT_EQ(attention.cache(), (CacheLayout{{{"latent", 576}}}));
  EXPECT_EQ(attention.inputs(), (std::vector<RowPart>{{"queries", 6 * 576}, {"latent", 576}}));
  EXPECT_EQ(attention.input_width(), 7 * 576);
  EXPECT_EQ(attention.output_width(), 6 * 512);
  EXPECT_EQ(attention.projected_width(), 6 * 100);
  EXPECT_EQ(attention.widest_projected(), 6 * 100);
  LatentAttention ranks = latent_heads();
  ranks.query_rank = 700;
  EXPECT_EQ(Attention(ranks).widest_projected(), 700);
  EXPECT_EQ(attention.temporary_width(), 6 * 192 + 40);
  EXPECT_EQ(attention.query_head_width(), 576);
  EXPECT_EQ(attention.heads().kv, 1);
}

TEST(Attention, LatentHalvesQueryHeadsAndTellsShapesApart) {
  Attention attention = latent_heads();
  const std::string before = attention.shape();
  EXPECT_TRUE(attention.halve());
  EXPECT_NE(attention.shape(), before);
  EXPECT_FALSE(attention.halve()) << "three heads";
  for (int64_t LatentAttention::*field :
       {&LatentAttention::query_rank, &LatentAttention::latent_rank, &LatentAttention::plain_dims,
        &LatentAttention::rotated_dims, &LatentAttention::value_dim}) {
    LatentAttention other = latent_heads();
    other.*field += 8;
    EXPECT_NE(Attention(other).shape(), before);
  }
}

TEST(Attention, GatesOfResultsAreAnInputThatTheCacheDoesNotKeep) {
  GroupedHeads heads = narrow_values();
  heads.value_dim.reset();
  const std::string before = Attention(heads).shape();
  heads.output_gate = true;
  const Attention attention = heads;
  EXPECT_EQ(attention.queries(), (std::vector<RowPart>{{"queries", 8 * 192}, {"gates", 8 * 192}}));
  EXPECT_EQ(attention.cache(), (CacheLayout{{{"keys", 4 * 192}, {"values", 4 * 192}}}));
  EXPECT_EQ(attention.input_width(), (16 + 8) * 192);
  EXPECT_EQ(attention.temporary_width(), 16 * 192);
  EXPECT_EQ(attention.output_width(), 8 * 192);
  EXPECT_NE(attention.shape(), before);
}

GatedDeltaNet delta_heads() {
  GatedDeltaNet net;
  net.key_heads = 6;
  net.value_heads = 12;
  net.key_dim = 32;
  net.value_dim = 20;
  net.taps = 4;
  return net;
}

TEST(Attention, GatedDeltaNetKeepsAStateAndNothingOfAPosition) {
  const Attention attention = delta_heads();
  const int64_t mixed = 2 * 6 * 32 + 12 * 20;
  EXPECT_TRUE(attention.cache().parts.empty());
  EXPECT_EQ(attention.cache().state_bytes,
            4 * static_cast<uint64_t>(12 * 32 * 20 + 3 * mixed));  // matrices, inputs before
  EXPECT_EQ(attention.inputs(),
            (std::vector<RowPart>{
                {"queries, keys and values", mixed}, {"gates", 12 * 20}, {"rates", 24}}));
  EXPECT_EQ(attention.input_width(), mixed + 240 + 24);
  EXPECT_EQ(attention.output_width(), 240);
  EXPECT_GE(attention.temporary_width(), attention.input_width());
}

TEST(Attention, GatedDeltaNetHalvesHeadsAndTellsShapesApart) {
  Attention attention = delta_heads();
  const std::string before = attention.shape();
  EXPECT_TRUE(attention.halve());
  EXPECT_EQ(attention.delta_net().key_heads, 3);
  EXPECT_EQ(attention.delta_net().value_heads, 6);
  EXPECT_NE(attention.shape(), before);
  EXPECT_FALSE(attention.halve());
  for (int64_t GatedDeltaNet::*field :
       {&GatedDeltaNet::key_heads, &GatedDeltaNet::value_heads, &GatedDeltaNet::key_dim,
        &GatedDeltaNet::value_dim, &GatedDeltaNet::taps}) {
    GatedDeltaNet other = delta_heads();
    other.*field += 6;
    EXPECT_NE(Attention(other).shape(), before);
  }
}

TEST(CacheLayouts, AreThoseOfTheLayersAndCountedTogether) {
  ModelDescription model;
  model.layers.push_back({narrow_values(), {}});
  model.layers.push_back({narrow_values(), {}});
  model.layers[1].attention.halve();
  const CacheLayouts layouts(model);
  ASSERT_EQ(layouts.layers().size(), 2u);
  EXPECT_EQ(layouts.layers()[1], (CacheLayout{{{"keys", 2 * 192}, {"values", 2 * 128}}}));
  EXPECT_EQ(kv_numbers_per_token(model), (4 + 2) * (192 + 128));
}

}  // namespace
}  // namespace klotski
