#include "kv/paged_cache.h"

#include <gtest/gtest.h>

#include <random>

#include "kv/testing.h"

namespace klotski {
namespace {

using testing::two_layers;

TEST(PagedKvCache, CountsPagesWithinTheLimit) {
  const ModelDescription model = two_layers();
  const uint64_t page = PagedKvCache::page_bytes(model);
  EXPECT_EQ(page, 16u * 2 * (3 + 6) * sizeof(float));
  PagedKvCache cache(model, {.memory_bytes = 3 * page + page / 2});
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

TEST(PagedKvCache, ABookedSequenceNeverLacksAPage) {
  const ModelDescription model = two_layers();
  PagedKvCache cache(model, {.memory_bytes = 4 * PagedKvCache::page_bytes(model)});
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
// it was written, in every layer, whatever the others did.
TEST(PagedKvCache, RandomUseNeverMixesSequences) {
  const ModelDescription model = two_layers();
  std::mt19937 random(7);
  PagedKvCache cache(model, {.memory_bytes = 40 * PagedKvCache::page_bytes(model)});
  std::vector<KvSequence> sequences(6);
  std::vector<std::vector<float>> marks(6);  // one a position
  float next_mark = 1.0f;
  for (int step = 0; step < 2000; ++step) {
    const size_t s = random() % sequences.size();
    KvSequence& sequence = sequences[s];
    if (random() % 10 == 0) {
      cache.release(sequence);
      marks[s].clear();
      continue;
    }
    const int64_t tokens = 1 + static_cast<int64_t>(random() % 20);
    if (!cache.reserve(sequence, tokens)) continue;
    const int64_t first = sequence.length();
    for (int64_t i = 0; i < tokens; ++i, next_mark += 1.0f) {
      marks[s].push_back(next_mark);
      for (int32_t layer = 0; layer < 2; ++layer) {
        const int64_t width = model.layers[static_cast<size_t>(layer)].attention.kv_width();
        const std::vector<float> keys(static_cast<size_t>(width),
                                      next_mark + 0.25f * static_cast<float>(layer));
        const std::vector<float> values(static_cast<size_t>(width),
                                        -next_mark - 0.25f * static_cast<float>(layer));
        cache.write(sequence, LayerId(layer), first + i, ConstRows(keys.data(), 1, width),
                    ConstRows(values.data(), 1, width));
      }
    }
    cache.commit(sequence, tokens);

    for (size_t other = 0; other < sequences.size(); ++other) {
      for (int32_t layer = 0; layer < 2; ++layer) {
        const int64_t width = model.layers[static_cast<size_t>(layer)].attention.kv_width();
        const KvView view = cache.pages(sequences[other], LayerId(layer));
        const KvPages pages = view.pages();
        ASSERT_EQ(sequences[other].length(), static_cast<int64_t>(marks[other].size()));
        for (size_t p = 0; p < marks[other].size(); ++p) {
          const int64_t offset = static_cast<int64_t>(p % 16) * width;
          ASSERT_EQ(testing::cached_value(pages.keys[p / 16], offset),
                    marks[other][p] + 0.25f * static_cast<float>(layer));
          ASSERT_EQ(testing::cached_value(pages.values[p / 16], offset + width - 1),
                    -marks[other][p] - 0.25f * static_cast<float>(layer));
        }
      }
    }
  }
}

}  // namespace
}  // namespace klotski
