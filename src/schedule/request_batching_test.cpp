#include "schedule/request_batching.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "base/error.h"

namespace klotski {
namespace {

using BatchNumbers = std::vector<size_t>;

std::vector<MicroBatchLoad> empty(int64_t micro_batches) {
  return std::vector<MicroBatchLoad>(static_cast<size_t>(micro_batches));
}

TEST(RequestBatching, LongestGoesToTheEmptiest) {
  const std::vector<int64_t> lengths = {5, 9, 1, 7, 3, 8};
  // 9 | 8 7 | 5 then 8+7=15 > 9+5=14: 3 to the first, which is full; 1 to the second.
  EXPECT_EQ(batch_requests(lengths, empty(2), 3), (BatchNumbers{0, 0, 1, 1, 0, 1}));
}

TEST(RequestBatching, MoreThanFitAreRefused) {
  const std::vector<int64_t> lengths = {1, 1, 1};
  EXPECT_THROW(batch_requests(lengths, empty(2), 1), Error);
  EXPECT_THROW(batch_requests(lengths, {}, 4), Error);
}

TEST(RequestBatching, NothingGivesNothing) { EXPECT_TRUE(batch_requests({}, empty(2), 4).empty()); }

TEST(RequestBatching, RunningMicroBatchesCountWithWhatTheyHave) {
  const std::vector<int64_t> lengths = {4, 2};
  const std::vector<MicroBatchLoad> loads = {{.requests = 1, .tokens = 9}, {3, 0}, {1, 1}};
  // The second is full; the third has fewest tokens for both.
  EXPECT_EQ(batch_requests(lengths, loads, 3), (BatchNumbers{2, 2}));
}

TEST(RequestBatching, NoMicroBatchHasMoreRequestsThanTheLimit) {
  std::mt19937 random(1);
  for (int round = 0; round < 5000; ++round) {
    const auto below = [&](int64_t bound) {
      return static_cast<int64_t>(random() % static_cast<uint32_t>(bound));
    };
    const int64_t micro_batches = 1 + below(6);
    const int64_t most_requests = 1 + below(8);
    std::vector<int64_t> lengths(static_cast<size_t>(below(micro_batches * most_requests + 1)));
    for (int64_t& length : lengths) length = 1 + below(100);
    const BatchNumbers found = batch_requests(lengths, empty(micro_batches), most_requests);
    ASSERT_EQ(found.size(), lengths.size());
    for (int64_t k = 0; k < micro_batches; ++k) {
      ASSERT_LE(std::count(found.begin(), found.end(), static_cast<size_t>(k)), most_requests);
    }
    for (const size_t k : found) ASSERT_LT(static_cast<int64_t>(k), micro_batches);
  }
}

// Where there is room for all requests, two micro-batches that are not full differ by at most one
// longest request.
TEST(RequestBatching, SumsAreBalanced) {
  std::mt19937 random(2);
  for (int round = 0; round < 2000; ++round) {
    std::vector<int64_t> lengths(10 + random() % 50);
    for (int64_t& length : lengths) length = 1 + static_cast<int64_t>(random() % 100);
    const BatchNumbers found = batch_requests(lengths, empty(4), 1000);
    std::vector<int64_t> sums(4);
    for (size_t i = 0; i < found.size(); ++i) sums[found[i]] += lengths[i];
    const auto extremes = std::minmax_element(sums.begin(), sums.end());
    ASSERT_LE(*extremes.second - *extremes.first,
              *std::max_element(lengths.begin(), lengths.end()));
  }
}

}  // namespace
}  // namespace klotski
