#include "engine/request_batching.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

namespace klotski {
namespace {

using Indices = std::vector<size_t>;

std::vector<MicroBatchLoad> empty(int64_t micro_batches) {
  return std::vector<MicroBatchLoad>(static_cast<size_t>(micro_batches));
}

TEST(RequestBatching, LongestGoesToTheEmptiest) {
  const std::vector<int64_t> lengths = {5, 9, 1, 7, 3, 8};
  const RequestBatches batches = batch_requests(lengths, empty(2), {3, 1, 100});
  // 9 | 8 7 | 5 then 8+7=15 > 9+5=14: 3 to the first, which is full; 1 to the second.
  EXPECT_EQ(batches.micro_batches, (std::vector<Indices>{{1, 0, 4}, {5, 3, 2}}));
  EXPECT_TRUE(batches.aborted.empty());
}

TEST(RequestBatching, WhatDoesNotFitIsAborted) {
  // Each takes its length and two generated tokens of a cache of ten.
  const std::vector<int64_t> lengths = {9, 4, 3, 8};
  const RequestBatches batches = batch_requests(lengths, empty(1), {10, 2, 10});
  EXPECT_EQ(batches.micro_batches, (std::vector<Indices>{{3}}));
  EXPECT_EQ(batches.aborted, (Indices{0, 1, 2}));
}

TEST(RequestBatching, WithoutAPartitionLeftTheRestIsAborted) {
  const std::vector<int64_t> lengths = {1, 1, 1, 1, 1};
  const RequestBatches batches = batch_requests(lengths, empty(2), {1, 0, 100});
  EXPECT_EQ(batches.micro_batches, (std::vector<Indices>{{0}, {1}}));
  EXPECT_EQ(batches.aborted, (Indices{2, 3, 4}));
}

TEST(RequestBatching, NothingGivesNothing) {
  EXPECT_EQ(batch_requests({}, empty(2), {4, 4, 4}).micro_batches, std::vector<Indices>(2));
  const std::vector<int64_t> lengths = {1};
  EXPECT_EQ(batch_requests(lengths, {}, {4, 4, 4}).aborted, Indices{0});
}

TEST(RequestBatching, RunningMicroBatchesCountWithWhatTheyHave) {
  const std::vector<int64_t> lengths = {4, 2};
  const std::vector<MicroBatchLoad> loads = {{.requests = 1, .tokens = 9}, {3, 0}, {1, 1}};
  const RequestBatches batches = batch_requests(lengths, loads, {.requests_per_micro_batch = 3});
  // The second is full; the third has fewest tokens for both.
  EXPECT_EQ(batches.micro_batches, (std::vector<Indices>{{}, {}, {0, 1}}));
}

TEST(RequestBatching, LimitsHoldAndEachRequestIsInOnePlace) {
  std::mt19937 random(1);
  for (int round = 0; round < 5000; ++round) {
    const auto below = [&](int64_t bound) {
      return static_cast<int64_t>(random() % static_cast<uint32_t>(bound));
    };
    std::vector<int64_t> lengths(static_cast<size_t>(below(40)));
    for (int64_t& length : lengths) length = 1 + below(100);
    const int64_t micro_batches = 1 + below(6);
    const MicroBatchLimits limits{1 + below(8), below(30), 50 + below(400)};
    const RequestBatches batches = batch_requests(lengths, empty(micro_batches), limits);

    Indices all = batches.aborted;
    ASSERT_EQ(static_cast<int64_t>(batches.micro_batches.size()), micro_batches);
    for (const Indices& batch : batches.micro_batches) {
      const auto count = static_cast<int64_t>(batch.size());
      ASSERT_LE(count, limits.requests_per_micro_batch);
      if (count == 0) continue;
      int64_t tokens = count * limits.generated_per_request;
      for (const size_t request : batch) tokens += lengths[request];
      ASSERT_LE(tokens, limits.cached_per_micro_batch);
      all.insert(all.end(), batch.begin(), batch.end());
    }
    std::sort(all.begin(), all.end());
    Indices expected(lengths.size());
    std::iota(expected.begin(), expected.end(), size_t{0});
    ASSERT_EQ(all, expected);
  }
}

// With room for all, two micro-batches that are not full differ by at most one longest request.
TEST(RequestBatching, SumsAreBalanced) {
  std::mt19937 random(2);
  for (int round = 0; round < 2000; ++round) {
    std::vector<int64_t> lengths(10 + random() % 50);
    for (int64_t& length : lengths) length = 1 + static_cast<int64_t>(random() % 100);
    const RequestBatches batches = batch_requests(lengths, empty(4), {1000, 0, 1 << 20});
    std::vector<int64_t> sums;
    for (const Indices& batch : batches.micro_batches) {
      sums.push_back(0);
      for (const size_t request : batch) sums.back() += lengths[request];
    }
    ASSERT_EQ(sums.size(), 4u);
    const auto extremes = std::minmax_element(sums.begin(), sums.end());
    ASSERT_LE(*extremes.second - *extremes.first,
              *std::max_element(lengths.begin(), lengths.end()));
  }
}

}  // namespace
}  // namespace klotski
