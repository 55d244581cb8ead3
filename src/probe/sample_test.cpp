#include "probe/sample.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <set>
#include <vector>

#include "base/bytes.h"
#include "kernels/ops.h"
#include "kernels/testing.h"
#include "probe/testing.h"
#include "tensor/compact.h"
#include "tensor/half.h"

namespace klotski {
namespace {

using testing::all_of_type;
using testing::TinyModel;

constexpr UnitKind kKinds[] = {UnitKind::model, UnitKind::attention, UnitKind::gate,
                               UnitKind::expert};

TEST(Sample, WhatFitsStaysAsItIs) {
  const TinyModel tiny("qwen2_moe");
  for (const UnitKind kind : kKinds) {
    const Sample sample = sample_of(tiny.description, LayerId(1), kind, tiny.types(), kGiB);
    EXPECT_EQ(sample.scale, 1.0);
    EXPECT_EQ(sample.model.layer_count(), 1);
    const auto whole = unit_tensors(tiny.description, {kind, LayerId(1), ExpertId(0)});
    const auto specs = sample.tensors();
    ASSERT_EQ(specs.size(), whole.size());
    for (size_t i = 0; i < specs.size(); ++i) EXPECT_EQ(specs[i].shape, whole[i].shape);
  }
}

TEST(Sample, WhatDoesNotFitIsMadeNarrower) {
  const TinyModel tiny("qwen2_moe");  // has a shared expert
  const StoredTypes types = tiny.types();
  for (const UnitKind kind : kKinds) {
    const uint64_t whole =
        weight_bytes(sample_of(tiny.description, LayerId(0), kind, types, kGiB).tensors(), types);
    const uint64_t bound = whole * 3 / 4;
    const Sample sample = sample_of(tiny.description, LayerId(0), kind, types, bound);
    const uint64_t bytes = weight_bytes(sample.tensors(), types);
    EXPECT_LE(bytes, bound) << unit_kind_name(kind);
    EXPECT_DOUBLE_EQ(sample.scale, static_cast<double>(whole) / static_cast<double>(bytes));
    const GroupedHeads& before = tiny.description.layers[0].attention.grouped_heads();
    const GroupedHeads& after = sample.model.layers[0].attention.grouped_heads();
    EXPECT_EQ(before.query_heads * after.kv_heads, after.query_heads * before.kv_heads);
  }
}

TEST(Sample, ALimitThatNothingMeetsEndsTheHalving) {
  const TinyModel tiny("mixtral");
  for (const UnitKind kind : kKinds) {
    const Sample sample = sample_of(tiny.description, LayerId(0), kind, tiny.types(), 1);
    EXPECT_GE(weight_bytes(sample.tensors(), tiny.types()), 64u);
  }
}

float as_float(const std::byte* at, DType type) {
  const std::vector<TokenId> first{0};
  float value = 0.0f;
  reference_processor().embed({&value, 1, 1}, {at, type, {1, 1}}, first);
  return value;
}

TEST(RandomWeights, NumbersAreFiniteAndSmallInEveryType) {
  for (const DType type : {DType::F32, DType::F16, DType::BF16}) {
    alignas(8) std::array<std::byte, 8192> bytes{};
    fill_random(cpu_processor(), bytes, type);
    std::set<float> different;
    int negative = 0;
    const auto each = static_cast<size_t>(bytes_per_element(type));
    for (size_t i = 0; i < bytes.size(); i += each) {
      const float value = as_float(bytes.data() + i, type);
      EXPECT_GE(std::abs(value), 0x1p-7f) << dtype_name(type);
      EXPECT_LE(std::abs(value), 0x1p-3f) << dtype_name(type);
      different.insert(value);
      negative += value < 0.0f ? 1 : 0;
    }
    EXPECT_GT(different.size(), 500u);
    EXPECT_GT(negative, 500);
  }
}

TEST(RandomWeights, NumbersOfCompactRowsAreFiniteAndNotLarge) {
  constexpr int64_t kColumns = 192;
  alignas(8) std::array<std::byte, 100 * compact_row_bytes(kColumns)> bytes{};
  fill_random(cpu_processor(), bytes, kCompactType);
  std::set<uint16_t> different;
  for (int64_t row = 0; row < 100; ++row) {
    std::array<uint16_t, kColumns> numbers{};
    expand_row(bytes.data() + row * compact_row_bytes(kColumns), kColumns, 0, numbers);
    for (const uint16_t bits : numbers) {
      EXPECT_GE(std::abs(bf16_to_float(bits)), 0x1p-31f);
      EXPECT_LE(std::abs(bf16_to_float(bits)), 1.0f);
      different.insert(bits);
    }
  }
  EXPECT_GT(different.size(), 500u);
}

TEST(RandomWeights, CopiesComeInTurnWithinTheirBytes) {
  const std::vector<TensorSpec> specs{{Role::expert_gate, "g", {8, 16}},
                                      {Role::expert_up, "u", {8, 16}},
                                      {Role::attention_norm, "n", {3}}};  // 6 bytes take 256
  const StoredTypes types = all_of_type(DType::BF16);
  ASSERT_EQ(weight_bytes(specs, types), 256u * 3);
  const auto copies = [&](RandomWeights::Bytes bytes) {
    Tier tier("test", kMiB);
    RandomWeights weights(tier, reference_processor(), specs, types, bytes);
    std::set<const std::byte*> places;
    for (int i = 0; i < 100; ++i) places.insert(weights.next()[Role::expert_up].data);
    EXPECT_EQ(tier.used_bytes(), places.size() * 768);
    return places.size();
  };
  EXPECT_EQ(copies({.wanted = 5000, .most = 100000}), 7u);
  EXPECT_EQ(copies({.wanted = 5000, .most = 2000}), 2u);
  EXPECT_EQ(copies({.wanted = 5000, .most = 0}), 1u);
  EXPECT_EQ(copies({.wanted = 0, .most = 5000}), 1u);
}

// A processor that claims to have arranged any weights it is given.
class Arranging : public ReferenceProcessor {
 public:
  ElementOrder arrange(std::byte*, DType, const Shape&, Precision) const override {
    return ElementOrder::arranged;
  }
};

TEST(RandomWeights, ArrangesWhatIsMultipliedAlone) {
  StoredTypes types = all_of_type(DType::BF16);
  types[static_cast<size_t>(Role::dense_up)] = DType::F32;
  const std::vector<TensorSpec> specs{{Role::expert_gate, "g", {64, 64}},
                                      {Role::expert_up, "u", {64, 64}},
                                      {Role::dense_gate, "dg", {64, 64}},
                                      {Role::dense_up, "du", {64, 64}},
                                      {Role::router, "r", {64, 64}}};
  Tier tier("test", kMiB);
  const Arranging ops;
  RandomWeights weights(tier, ops, specs, types, {.wanted = 50000, .most = kMiB});
  int arranged = 0;
  weights.arrange(Precision::bf16);
  for (int i = 0; i < 4; ++i) {
    const WeightSet& set = weights.next();
    arranged += set[Role::expert_gate].order == ElementOrder::arranged ? 1 : 0;
    EXPECT_EQ(set[Role::router].order, ElementOrder::rows);
    EXPECT_EQ(set[Role::dense_gate].order, ElementOrder::rows) << "its partner is of another type";
  }
  EXPECT_EQ(arranged, 4);
}

}  // namespace
}  // namespace klotski
