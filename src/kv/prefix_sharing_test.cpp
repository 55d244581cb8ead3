// Sequences that share the pages of their first tokens.

#include <gtest/gtest.h>

#include <deque>
#include <random>

#include "kv/testing.h"
#include "kv/transaction.h"

namespace klotski {
namespace {

using testing::two_layers;

std::vector<TokenId> counting(int64_t count, TokenId first = 0) {
  std::vector<TokenId> tokens(static_cast<size_t>(count));
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = first + static_cast<TokenId>(i);
  return tokens;
}

class PrefixSharing : public ::testing::Test {
 protected:
  PagedKvCache cache(int64_t pages, StreamingWindow window = {}) const {
    return PagedKvCache(model_, {.type = DType::F32,
                                 .memory_bytes = static_cast<uint64_t>(pages) *
                                                 PagedKvCache::page_bytes(model_, DType::F32),
                                 .streaming = window});
  }
  // Computes all tokens that the sequence lacks, with numbers that `text` has.
  void compute(PagedKvCache& cache, KvSequence& sequence, std::span<const TokenId> tokens,
               int64_t text) const {
    const int64_t missing = std::ssize(tokens) - sequence.length();
    KvTransaction step(cache);
    step.reserve(sequence, missing);
    for (int64_t layer = 0; layer < model_.layer_count(); ++layer) {
      testing::write_marks(cache, model_, text, sequence, LayerId(layer), missing, nullptr);
    }
    step.commit();
    cache.publish(sequence, tokens);
  }
  bool holds(const PagedKvCache& cache, const KvSequence& sequence, int64_t text) const {
    for (int64_t layer = 0; layer < model_.layer_count(); ++layer) {
      const KvView view = cache.view(sequence, LayerId(layer));
      if (!testing::holds_marks(keys_and_values(view.cache()), model_, text, sequence.length(),
                                LayerId(layer), [](int64_t) { return true; })) {
        return false;
      }
    }
    return true;
  }

  ModelDescription model_ = two_layers();
};

TEST_F(PrefixSharing, ASequenceBeginsWithThePagesOfAnother) {
  PagedKvCache cache = this->cache(8);
  const std::vector<TokenId> tokens = counting(40);
  KvSequence first;
  ASSERT_TRUE(cache.place(first, 40, 40, {.tokens = tokens}));
  EXPECT_EQ(first.length(), 0);
  compute(cache, first, tokens, 1);
  EXPECT_EQ(cache.free_pages(false), 5) << "known pages that a sequence uses are not free";
  KvSequence second;
  ASSERT_TRUE(cache.place(second, 48, 48, {.tokens = tokens}));
  EXPECT_EQ(second.length(), 32) << "two full pages";
  EXPECT_EQ(cache.pages_in_use(), 3);
  compute(cache, second, tokens, 1);
  EXPECT_EQ(cache.pages_in_use(), 4);
  EXPECT_TRUE(holds(cache, second, 1));
  cache.release(first);
  EXPECT_TRUE(holds(cache, second, 1)) << "whoever computed them";
  cache.release(second);
  EXPECT_EQ(cache.pages_in_use(), 2) << "full pages stay";
  EXPECT_EQ(cache.free_pages(false), 8) << "and count as free";
  EXPECT_EQ(cache.prefix_counters().hits, 1);
  EXPECT_EQ(cache.prefix_counters().tokens, 32);
}

// A sequence for whose own pages there is no room lies in the file as a whole: it lets go of what
// it found.
TEST_F(PrefixSharing, ASpilledSequenceSharesNothing) {
  PagedKvCache cache(model_, {.type = DType::F32,
                              .memory_bytes = 4 * PagedKvCache::page_bytes(model_, DType::F32),
                              .spill_bytes = 8 * testing::kSpillPageBytes,
                              .spill_store = testing::file_store()});
  const std::vector<TokenId> tokens = counting(40);
  KvSequence first;
  ASSERT_TRUE(cache.place(first, 40, 40, {.tokens = tokens}));
  compute(cache, first, tokens, 1);
  KvSequence second;
  ASSERT_TRUE(cache.place(second, 80, 80, {.tokens = tokens}));
  EXPECT_TRUE(second.spilled());
  EXPECT_EQ(second.length(), 0);
  EXPECT_EQ(cache.prefix_counters().hits, 0);
  cache.release(second);
  cache.release(first);
  EXPECT_EQ(cache.free_pages(false), 4) << "nobody holds a page";
}

TEST_F(PrefixSharing, OneTokenIsLeftToCompute) {
  PagedKvCache cache = this->cache(8);
  const std::vector<TokenId> tokens = counting(32);
  KvSequence first;
  ASSERT_TRUE(cache.place(first, 33, 32, {.tokens = tokens}));
  compute(cache, first, tokens, 1);
  KvSequence second;
  ASSERT_TRUE(cache.place(second, 33, 32, {.tokens = tokens}));
  EXPECT_EQ(second.length(), 16);
  compute(cache, second, tokens, 1);
  EXPECT_EQ(cache.pages_in_use(), 2) << "its own second page gave way to the known one";
  EXPECT_TRUE(holds(cache, second, 1));
}

TEST_F(PrefixSharing, OtherTokensShareNothing) {
  PagedKvCache cache = this->cache(8);
  KvSequence first;
  std::vector<TokenId> tokens = counting(40);
  ASSERT_TRUE(cache.place(first, 40, 40, {.tokens = tokens}));
  compute(cache, first, tokens, 1);
  tokens[0] = 9;
  KvSequence second;
  ASSERT_TRUE(cache.place(second, 40, 40, {.tokens = tokens}));
  EXPECT_EQ(second.length(), 0);
}

TEST_F(PrefixSharing, KeptPagesGiveWayToNewOnes) {
  PagedKvCache cache = this->cache(4);
  for (TokenId text = 0; text < 5; ++text) {
    KvSequence sequence;
    const std::vector<TokenId> tokens = counting(48, 100 * text);
    ASSERT_TRUE(cache.place(sequence, 64, 64, {.tokens = tokens}));
    compute(cache, sequence, tokens, text);
    EXPECT_TRUE(holds(cache, sequence, text));
    EXPECT_LE(cache.pages_in_use(), 4);
    cache.release(sequence);
  }
  EXPECT_EQ(cache.free_pages(false), 4);
}

TEST_F(PrefixSharing, SparePagesHaveToStayFree) {
  PagedKvCache cache = this->cache(4);
  KvSequence sequence;
  EXPECT_FALSE(cache.place(sequence, 33, 33, {.spare_pages = 2}));
  EXPECT_TRUE(cache.place(sequence, 33, 33, {.spare_pages = 1}));
  EXPECT_EQ(cache.pages_to_book(sequence, 48), 0);
  EXPECT_EQ(cache.pages_to_book(sequence, 49), 1);
  EXPECT_EQ(cache.free_pages(false), 1);
  const int64_t number = sequence.number();
  cache.vacate(sequence);
  EXPECT_EQ(sequence.number(), number);
  EXPECT_EQ(cache.free_pages(false), 4);
  EXPECT_TRUE(cache.place(sequence, 64, 64)) << "anew";
}

TEST_F(PrefixSharing, AWindowSharesNothing) {
  PagedKvCache cache = this->cache(8, {.sinks = 4, .window = 16});
  EXPECT_FALSE(cache.can_share_prefixes());
  const std::vector<TokenId> tokens = counting(40);
  KvSequence first;
  ASSERT_TRUE(cache.place(first, 40, 40, {.tokens = tokens}));
  compute(cache, first, tokens, 1);
  EXPECT_EQ(cache.shared_pages(), 0);
}

// Random texts with common beginnings that come, grow, fail and go: every sequence holds its own
// numbers, no limit is exceeded, and nothing stays booked.
TEST_F(PrefixSharing, SequencesHoldTheirNumbersWhoeverSharesThem) {
  std::mt19937 random(2);
  const auto below = [&](int64_t bound) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(bound));
  };
  constexpr int64_t kPages = 20;
  PagedKvCache cache = this->cache(kPages);
  struct Text {
    int64_t number;
    std::vector<TokenId> tokens;
    KvSequence kv;
  };
  std::deque<Text> running;
  for (int step = 0; step < 3000; ++step) {
    if (below(2) == 0 && running.size() < 6) {
      const int64_t number = below(3);
      Text& text = running.emplace_back();
      text.number = number;
      text.tokens = counting(1 + below(60), static_cast<TokenId>(1000 * number));
      if (!cache.place(text.kv, std::ssize(text.tokens) + 1, 64, {.tokens = text.tokens})) {
        EXPECT_EQ(text.kv.length(), 0);
        running.pop_back();
      }
    }
    if (running.empty()) continue;
    const auto at = static_cast<std::ptrdiff_t>(below(std::ssize(running)));
    Text& text = running[static_cast<size_t>(at)];
    if (below(4) == 0) {
      cache.release(text.kv);
      running.erase(running.begin() + at);
    } else if (cache.pages_to_book(text.kv, std::ssize(text.tokens) - text.kv.length()) <=
               cache.free_pages(false)) {
      if (below(5) == 0) {
        KvTransaction failed(cache);
        failed.reserve(text.kv, std::ssize(text.tokens) - text.kv.length());
      }
      compute(cache, text.kv, text.tokens, text.number);
      text.tokens.push_back(text.tokens.back() + 1);
    } else {
      cache.vacate(text.kv);
      running.erase(running.begin() + at);
    }
    ASSERT_LE(cache.pages_in_use(), kPages);
    for (const Text& one : running) ASSERT_TRUE(holds(cache, one.kv, one.number));
  }
  for (Text& text : running) cache.release(text.kv);
  EXPECT_EQ(cache.free_pages(false), kPages);
  EXPECT_EQ(cache.pages_in_use(), cache.shared_pages());
  EXPECT_GT(cache.prefix_counters().hits, 100);
}

}  // namespace
}  // namespace klotski
