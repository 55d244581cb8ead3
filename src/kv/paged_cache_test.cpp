#include "kv/paged_cache.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <random>

#include "base/error.h"
#include "kv/testing.h"

namespace klotski {
namespace {

using testing::two_layers;

class PagedKvCacheOf : public ::testing::TestWithParam<DType> {
 protected:
  static KvLimits limits_of(const ModelDescription& model, uint64_t pages) {
    return {.type = GetParam(),
            .memory_bytes = pages * PagedKvCache::page_bytes(model, GetParam())};
  }
};
INSTANTIATE_TEST_SUITE_P(Types, PagedKvCacheOf, testing::both_types(), testing::type_name);

// A sequence that was numbered may be placed after one that came later.
TEST_P(PagedKvCacheOf, SequencesKeepTheirNumbers) {
  const ModelDescription model = two_layers();
  PagedKvCache cache(model, limits_of(model, 3));
  KvSequence first;
  KvSequence second;
  KvSequence third;
  cache.number(first);
  cache.number(second);
  EXPECT_TRUE(cache.place(second, 16, 16));
  EXPECT_TRUE(cache.place(first, 16, 16));
  EXPECT_TRUE(cache.place(third, 16, 16)) << "without a number";
  EXPECT_EQ(first.number(), 1);
  EXPECT_EQ(second.number(), 2);
  EXPECT_EQ(third.number(), 3);
}

TEST_P(PagedKvCacheOf, CountsPagesWithinTheLimit) {
  const ModelDescription model = two_layers();
  const uint64_t page = PagedKvCache::page_bytes(model, GetParam());
  EXPECT_EQ(page, 16u * 2 * (3 + 6) * (GetParam() == DType::BF16 ? 2 : 4));
  PagedKvCache cache(model, {.type = GetParam(), .memory_bytes = 3 * page + page / 2});
  EXPECT_EQ(cache.page_bytes(), page);
  EXPECT_EQ(cache.capacity_pages(), 3);
  KvSequence a;
  KvSequence b;
  EXPECT_TRUE(cache.reserve(a, 17));
  EXPECT_EQ(cache.pages_in_use(), 2);
  EXPECT_TRUE(cache.reserve(a, 17)) << "the same reservation twice takes nothing more";
  EXPECT_EQ(cache.pages_in_use(), 2);
  EXPECT_FALSE(cache.reserve(b, 33));
  EXPECT_EQ(cache.pages_in_use(), 2) << "a refused reservation takes nothing";
  EXPECT_TRUE(cache.reserve(b, 16));
  cache.release(a);
  EXPECT_EQ(cache.pages_in_use(), 1);
  EXPECT_TRUE(cache.reserve(b, 33));
}

TEST_P(PagedKvCacheOf, ABookedSequenceNeverLacksAPage) {
  const ModelDescription model = two_layers();
  PagedKvCache cache(model, limits_of(model, 4));
  KvSequence a;
  KvSequence b;
  ASSERT_TRUE(cache.place(a, 40, 40));
  EXPECT_EQ(cache.pages_in_use(), 0) << "booked, not taken";
  EXPECT_FALSE(cache.place(b, 17, 17)) << "there is no file to spill to";
  EXPECT_FALSE(b.spilled());
  EXPECT_TRUE(cache.reserve(b, 16)) << "one page is left";
  EXPECT_FALSE(cache.reserve(b, 17));
  EXPECT_TRUE(cache.reserve(a, 48));
  EXPECT_FALSE(cache.reserve(a, 49));
  EXPECT_EQ(cache.pages_in_use(), 4);
  cache.release(a);
  EXPECT_TRUE(cache.place(a, 48, 48)) << "a released sequence can be placed anew";
}

// Random sequences grow, shrink to nothing and grow again; every number written must be found where
// it was written, in every layer, whatever other sequences did.
TEST_P(PagedKvCacheOf, RandomUseNeverMixesSequences) {
  const ModelDescription model = two_layers();
  std::mt19937 random(7);
  PagedKvCache cache(model, limits_of(model, 40));
  std::vector<KvSequence> sequences(6);
  std::vector<int64_t> numbers(6, 0);  // a new one for each life of a sequence
  int64_t lives = 0;
  for (int step = 0; step < 2000; ++step) {
    const size_t s = random() % sequences.size();
    KvSequence& sequence = sequences[s];
    if (random() % 10 == 0) cache.release(sequence);
    if (sequence.length() == 0) numbers[s] = ++lives;
    const int64_t tokens = 1 + static_cast<int64_t>(random() % 20);
    if (!cache.reserve(sequence, tokens)) continue;
    for (int32_t layer = 0; layer < 2; ++layer) {
      testing::write_marks(cache, model, numbers[s], sequence, LayerId(layer), tokens, nullptr);
    }
    cache.commit(sequence, tokens);

    for (size_t other = 0; other < sequences.size(); ++other) {
      for (int32_t layer = 0; layer < 2; ++layer) {
        const KvView view = cache.view(sequences[other], LayerId(layer));
        ASSERT_TRUE(testing::holds_marks(keys_and_values(view.cache()), model, numbers[other],
                                         sequences[other].length(), LayerId(layer),
                                         [](int64_t) { return true; }))
            << "step " << step;
      }
    }
  }
}

// A layer for each width.
ModelDescription layers_of(std::initializer_list<int64_t> widths) {
  ModelDescription model;
  for (const int64_t width : widths) {
    GroupedHeads heads;
    heads.query_heads = heads.kv_heads = 1;
    heads.head_dim = width;
    model.layers.push_back({heads, {}});
  }
  return model;
}

TEST_P(PagedKvCacheOf, KeysAndValuesBeginAtWholeLines) {
  const ModelDescription model = layers_of({2, 128, 3, 64});
  PagedKvCache cache(model, limits_of(model, 4));
  KvSequence sequence;
  ASSERT_TRUE(cache.reserve(sequence, 64));
  for (int32_t layer = 0; layer < 4; ++layer) {
    const KvView view = cache.view(sequence, LayerId(layer));
    EXPECT_EQ(keys_and_values(view.cache()).type, GetParam());
    const bool odd = GetParam() == DType::BF16 && layer == 2;
    for (size_t page = 0; page < 4; ++page) {
      EXPECT_EQ(reinterpret_cast<uintptr_t>(keys_and_values(view.cache()).keys[page]) % 64, 0u);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(keys_and_values(view.cache()).values[page]) % 64,
                odd ? 32u : 0u);
    }
  }
}

TEST(PagedKvCache, Bf16TakesHalfTheBytes) {
  const ModelDescription model = layers_of({1024, 512});
  EXPECT_EQ(PagedKvCache::page_bytes(model, DType::F32), 16u * 2 * (1024 + 512) * 4);
  EXPECT_EQ(PagedKvCache::page_bytes(model, DType::BF16), 16u * 2 * (1024 + 512) * 2);
  EXPECT_EQ(PagedKvCache::spilled_page_bytes(model, DType::F32),
            (std::vector<uint64_t>{16 * 2 * 1024 * 4, 16 * 2 * 512 * 4}));
  EXPECT_EQ(PagedKvCache::spilled_page_bytes(model, DType::BF16),
            (std::vector<uint64_t>{16 * 2 * 1024 * 2, 16 * 2 * 512 * 2}));
  const uint64_t bytes = 10 * PagedKvCache::page_bytes(model, DType::F32);
  EXPECT_EQ(PagedKvCache(model, {.type = DType::F32, .memory_bytes = bytes}).capacity_pages(), 10);
  EXPECT_EQ(PagedKvCache(model, {.type = DType::BF16, .memory_bytes = bytes}).capacity_pages(), 20);
}

TEST(PagedKvCache, OtherTypesAreRefused) {
  EXPECT_THROW(PagedKvCache(two_layers(), {.type = DType::F16}), Error);
  EXPECT_THROW(PagedKvCache::page_bytes(two_layers(), DType::BOOL), Error);
}

TEST(PagedKvCache, ThePrecisionDecidesTheType) {
  EXPECT_EQ(kv_type(Precision::f32), DType::F32);
  EXPECT_EQ(kv_type(Precision::bf16), DType::BF16);
}

// The row as a cache gives it back, after it was written as keys and as values of a position in the
// middle of a page.
std::vector<float> through_cache(DType type, const std::vector<float>& row) {
  const auto width = static_cast<int64_t>(row.size());
  const ModelDescription model = layers_of({1, width});
  PagedKvCache cache(model, {.type = type, .memory_bytes = PagedKvCache::page_bytes(model, type)});
  KvSequence sequence;
  EXPECT_TRUE(cache.reserve(sequence, 16));
  const ConstRows rows(row.data(), 1, width);
  testing::put_rows(cache, sequence, LayerId(1), 5, rows, rows);
  const KvView view = cache.view(sequence, LayerId(1));
  std::vector<float> keys;
  for (int64_t i = 5 * width; i < 6 * width; ++i) {
    keys.push_back(testing::cached_value(keys_and_values(view.cache()).keys[0], type, i));
    const float value = testing::cached_value(keys_and_values(view.cache()).values[0], type, i);
    EXPECT_EQ(std::bit_cast<uint32_t>(value), std::bit_cast<uint32_t>(keys.back()));
  }
  return keys;
}

TEST(PagedKvCache, Bf16IsRoundedToNearestEven) {
  constexpr float kUnit = 1.0f / 128;  // distance of BF16 numbers at 1
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const std::vector<float> written = {1.0f,
                                      1.0f + kUnit / 2,
                                      1.0f + kUnit * 3 / 2,
                                      1.0f + kUnit * 0.51f,
                                      -1.0f - kUnit * 0.49f,
                                      -0.0f,
                                      std::numeric_limits<float>::max(),
                                      -kInfinity,
                                      std::numeric_limits<float>::denorm_min()};
  const std::vector<float> kept = {1.0f,  1.0f,      1.0f + 2 * kUnit, 1.0f + kUnit, -1.0f,
                                   -0.0f, kInfinity, -kInfinity,       0.0f};
  EXPECT_EQ(through_cache(DType::BF16, written), kept);
  EXPECT_TRUE(std::signbit(through_cache(DType::BF16, {-0.0f})[0]));
  EXPECT_EQ(through_cache(DType::F32, written), written);
}

// Rows of every width, so that loops over several numbers at a time have a rest; half of the
// numbers are NaN.
TEST(PagedKvCache, AnyBitsAreKeptOrRoundedAndNaNStaysNaN) {
  std::mt19937 random(13);
  for (size_t width = 1; width <= 70; ++width) {
    std::vector<float> row;
    for (size_t i = 0; i < width; ++i) {
      const auto bits = static_cast<uint32_t>(random());
      row.push_back(std::bit_cast<float>(random() % 2 == 0 ? bits | 0x7F800001u : bits));
    }
    const std::vector<float> exact = through_cache(DType::F32, row);
    const std::vector<float> rounded = through_cache(DType::BF16, row);
    for (size_t i = 0; i < width; ++i) {
      EXPECT_EQ(std::bit_cast<uint32_t>(exact[i]), std::bit_cast<uint32_t>(row[i]));
      EXPECT_EQ(std::isnan(rounded[i]), std::isnan(row[i]));
      EXPECT_EQ(std::bit_cast<uint32_t>(rounded[i]),
                std::bit_cast<uint32_t>(rounded_to_bf16(row[i])));
    }
  }
}

}  // namespace
}  // namespace klotski
