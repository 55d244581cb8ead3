#include "kv/transaction.h"

#include <gtest/gtest.h>

#include <random>

#include "base/error.h"
#include "kv/testing.h"

namespace klotski {
namespace {

using testing::file_store;
using testing::two_layers;

class KvTransactionTest : public ::testing::Test {
 protected:
  PagedKvCache cache(uint64_t pages, uint64_t spilled = 0) const {
    return PagedKvCache(model_,
                        {.type = DType::F32,
                         .memory_bytes = pages * PagedKvCache::page_bytes(model_, DType::F32),
                         .spill_bytes = spilled * testing::kSpillPageBytes,
                         .spill_store = file_store()});
  }

  ModelDescription model_ = two_layers();
};

TEST_F(KvTransactionTest, WhatIsCommittedStays) {
  PagedKvCache cache = this->cache(8);
  PlacedSequences sequences(cache);
  ASSERT_TRUE(sequences.place(40, 40) && sequences.place(40, 40));
  {
    KvTransaction step(cache);
    step.reserve(sequences[0], 17);
    step.reserve(sequences[1], 3);
    step.commit();
  }
  EXPECT_EQ(sequences[0].length(), 17);
  EXPECT_EQ(sequences[1].length(), 3);
  EXPECT_EQ(cache.pages_in_use(), 3);
}

// Drafted positions that turned out wrong: the next step computes others in their places.
TEST_F(KvTransactionTest, APartOfAStepIsKept) {
  for (const bool spilled : {false, true}) {
    PagedKvCache cache = this->cache(spilled ? 0 : 8, spilled ? 8 : 0);
    PlacedSequences sequences(cache);
    ASSERT_TRUE(sequences.place(60, 40));
    const int64_t free = cache.free_pages(spilled);
    {
      KvTransaction step(cache);
      step.reserve(sequences[0], 40);
      step.keep(sequences[0], 15);
      step.commit();
    }
    EXPECT_EQ(sequences[0].length(), 15);
    EXPECT_EQ(cache.pages_in_use(), spilled ? 0 : 1);
    {
      KvTransaction step(cache);
      step.reserve(sequences[0], 45);
      step.commit();
    }
    EXPECT_EQ(sequences[0].length(), 60);
    EXPECT_EQ(cache.free_pages(spilled), free) << "within the booked pages";
  }
}

// Pages booked for drafts alone are free again, for other sequences too; pages booked before stay.
TEST_F(KvTransactionTest, PagesOfPositionsTakenBackAreNotBooked) {
  for (const bool spilled : {false, true}) {
    PagedKvCache cache = this->cache(spilled ? 0 : 8, spilled ? 8 : 0);
    PlacedSequences sequences(cache);
    ASSERT_TRUE(sequences.place(17, 17));
    EXPECT_EQ(cache.free_pages(spilled), 6);
    const auto step_of = [&](int64_t reserved, int64_t kept) {
      KvTransaction step(cache);
      step.reserve(sequences[0], reserved);
      step.keep(sequences[0], kept);
      step.commit();
    };
    step_of(17, 16);
    EXPECT_EQ(cache.free_pages(spilled), 6) << "booked when the sequence was placed";
    step_of(60, 3);
    EXPECT_EQ(cache.free_pages(spilled), 6);
    step_of(30, 20);
    EXPECT_EQ(cache.free_pages(spilled), 5) << "39 positions";
  }
}

TEST_F(KvTransactionTest, WhatIsNotCommittedIsUndone) {
  PagedKvCache cache = this->cache(8);
  PlacedSequences sequences(cache);
  ASSERT_TRUE(sequences.place(60, 60));
  {
    KvTransaction step(cache);
    step.reserve(sequences[0], 10);
    step.commit();
  }
  try {
    KvTransaction step(cache);
    step.reserve(sequences[0], 40);
    EXPECT_EQ(cache.pages_in_use(), 4);
    fail(ErrorKind::internal, "a weight cannot be read");
  } catch (const Error&) {
  }
  EXPECT_EQ(sequences[0].length(), 10);
  EXPECT_EQ(cache.pages_in_use(), 1) << "the page with committed positions";
}

TEST_F(KvTransactionTest, AFullCacheRefusesAndUndoesTheRest) {
  PagedKvCache cache = this->cache(2);
  PlacedSequences sequences(cache);
  ASSERT_TRUE(sequences.place(16, 16) && sequences.place(16, 16));
  EXPECT_FALSE(sequences.place(1, 1));
  EXPECT_EQ(sequences.size(), 2u);
  {
    KvTransaction step(cache);
    step.reserve(sequences[0], 16);
    EXPECT_THROW(step.reserve(sequences[1], 17), Error);
  }
  EXPECT_EQ(cache.pages_in_use(), 0);
}

TEST_F(KvTransactionTest, PlacedSequencesAreReleasedTogether) {
  PagedKvCache cache = this->cache(3, 4);
  {
    PlacedSequences sequences(cache);
    ASSERT_TRUE(sequences.place(40, 40));
    ASSERT_TRUE(sequences.place(40, 40));
    EXPECT_FALSE(sequences[0].spilled());
    EXPECT_TRUE(sequences[1].spilled());
    EXPECT_GT(cache.spilled_pages(), 0);
  }
  EXPECT_EQ(cache.spilled_pages(), 0);
  PlacedSequences again(cache);
  EXPECT_TRUE(again.place(48, 48)) << "all pages can be booked anew";
}

// Random steps, some of which fail: sequences hold their committed numbers and no more, bit for
// bit, and the pages in use are those that the committed positions need.
TEST_F(KvTransactionTest, FailedStepsLeaveNoTrace) {
  std::mt19937 random(7);
  for (int trial = 0; trial < 50; ++trial) {
    PagedKvCache cache = this->cache(12);
    PlacedSequences sequences(cache);
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(sequences.place(64, 64));
    std::vector<int64_t> lengths(3, 0);
    for (int i = 0; i < 12; ++i) {
      const bool succeeds = random() % 2 == 0;
      KvTransaction step(cache);
      for (size_t s = 0; s < 3; ++s) {
        const auto tokens = static_cast<int64_t>(random() % 5);
        if (tokens == 0) continue;
        step.reserve(sequences[s], tokens);
        const int64_t marked = succeeds ? static_cast<int64_t>(s) : 3;
        for (const int64_t layer : {0, 1}) {
          testing::write_marks(cache, model_, marked, sequences[s], LayerId(layer), tokens,
                               nullptr);
        }
        if (succeeds) lengths[s] += tokens;
      }
      if (succeeds) step.commit();
    }
    int64_t pages = 0;
    for (size_t s = 0; s < 3; ++s) {
      ASSERT_EQ(sequences[s].length(), lengths[s]);
      pages += PagedKvCache::pages_for(lengths[s]);
      for (const int64_t layer : {0, 1}) {
        const KvView view = cache.view(sequences[s], LayerId(layer));
        ASSERT_TRUE(testing::holds_marks(keys_and_values(view.cache()), model_,
                                         static_cast<int64_t>(s), lengths[s], LayerId(layer),
                                         [](int64_t) { return true; }));
      }
    }
    ASSERT_EQ(cache.pages_in_use(), pages);
  }
}

}  // namespace
}  // namespace klotski
