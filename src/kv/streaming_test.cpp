// First and latest positions only: pages are given back, and attention sees exactly the rest.

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <tuple>

#include "kv/paged_cache.h"
#include "kv/testing.h"

namespace klotski {
namespace {

using testing::StageBuffer;
using testing::two_layers;

const ModelDescription model = two_layers();

KvLimits limits_of(DType type, uint64_t memory_pages, uint64_t spill_pages,
                   StreamingWindow streaming) {
  return {.type = type,
          .memory_bytes = memory_pages * PagedKvCache::page_bytes(model, type),
          .spill_bytes = spill_pages * testing::kSpillPageBytes,
          .spill_store = testing::file_store(),
          .streaming = streaming};
}

class Streaming : public ::testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Types, Streaming, testing::both_types(), testing::type_name);

TEST_P(Streaming, PagesBetweenSinksAndWindowAreGivenBack) {
  PagedKvCache cache(model, limits_of(GetParam(), 100, 0, {.sinks = 4, .window = 20}));
  KvSequence sequence;
  int64_t most = 0;
  for (int64_t position = 0; position < 300; ++position) {
    ASSERT_TRUE(cache.reserve(sequence, 1));
    testing::write_marks(cache, model, 0, sequence, LayerId(0), 1, nullptr);
    most = std::max(most, cache.pages_in_use());
    cache.commit(sequence, 1);
    const int64_t window_begin = sequence.length() - 20 + 1;  // window of the next token
    const KvView view = cache.view(sequence, LayerId(0));
    ASSERT_TRUE(testing::holds_marks(
        keys_and_values(view.cache()), model, 0, sequence.length(), LayerId(0),
        [&](int64_t page) { return page == 0 || (page + 1) * 16 > window_begin; }));
  }
  EXPECT_LE(most, cache.pages_needed(300, 1));
  EXPECT_EQ(cache.pages_needed(300, 1), 1 + 2 + 1);
  const PagedKvCache whole_pages(model, limits_of(GetParam(), 100, 0, {.sinks = 4, .window = 16}));
  EXPECT_EQ(whole_pages.pages_needed(300, 1), 1 + 1 + 1);
  EXPECT_EQ(cache.pages_needed(20, 1), 2) << "a short text needs no more than its pages";
  cache.release(sequence);
  EXPECT_EQ(cache.pages_in_use(), 0);
}

// Attention written another way: every position with a mask, in double precision.
std::vector<double> masked_attention(const std::vector<float>& query,
                                     const std::vector<std::vector<float>>& keys,
                                     const std::vector<std::vector<float>>& values,
                                     const std::vector<bool>& seen, const GroupedHeads& shape) {
  std::vector<double> out(query.size(), 0.0);
  const auto dim = static_cast<size_t>(shape.head_dim);
  const auto heads = static_cast<size_t>(shape.query_heads);
  const size_t sharing = heads / static_cast<size_t>(shape.kv_heads);
  for (size_t head = 0; head < heads; ++head) {
    const size_t offset = head / sharing * dim;
    double total = 0.0;
    for (size_t p = 0; p < seen.size(); ++p) {
      if (!seen[p]) continue;
      double score = 0.0;
      for (size_t d = 0; d < dim; ++d) {
        score += static_cast<double>(query[head * dim + d]) * keys[p][offset + d];
      }
      const double share = std::exp(0.5 * score);
      total += share;
      for (size_t d = 0; d < dim; ++d) out[head * dim + d] += share * values[p][offset + d];
    }
    for (size_t d = 0; d < dim; ++d) out[head * dim + d] /= total;
  }
  return out;
}

std::vector<float> random_row(std::mt19937& random, int64_t width) {
  std::normal_distribution<float> normal;
  std::vector<float> row(static_cast<size_t>(width));
  for (float& value : row) value = normal(random);
  return row;
}

// The numbers that the cache keeps of a row.
std::vector<float> kept_as(DType type, std::vector<float> row) {
  if (type == DType::BF16) {
    for (float& value : row) value = rounded_to_bf16(value);
  }
  return row;
}

struct StreamingCase {
  StreamingWindow kept;
  int64_t layer_window;  // the model's own
  bool spilled;
};

class StreamingAttention : public ::testing::TestWithParam<std::tuple<StreamingCase, DType>> {};

// A text computed in pieces of random sizes: each token sees the sinks and its own window, however
// the text was cut and wherever the pages are.
TEST_P(StreamingAttention, IsThatOfAMask) {
  const auto& [kept, layer_window, spilled] = std::get<StreamingCase>(GetParam());
  const DType type = std::get<DType>(GetParam());
  std::mt19937 random(3);
  const GroupedHeads& shape = model.layers[1].attention.grouped_heads();
  const LayerId layer(1);
  PagedKvCache cache(model, limits_of(type, spilled ? 0 : 100, spilled ? 100 : 0, kept));
  KvSequence sequence;
  ASSERT_TRUE(cache.place(sequence, 150, 10));
  EXPECT_EQ(sequence.spilled(), spilled);
  std::vector<std::vector<float>> keys;
  std::vector<std::vector<float>> values;
  while (sequence.length() < 140) {
    const auto tokens = static_cast<int64_t>(1 + random() % 10);
    ASSERT_TRUE(cache.reserve(sequence, tokens));
    KvSequence* const members[] = {&sequence};
    const StageBuffer buffer(cache.stage_bytes(members));
    KvStage stage(buffer.bytes());
    cache.load(stage, members, layer);
    std::vector<float> queries;
    for (int64_t i = 0; i < tokens; ++i) {
      const std::vector<float> key = random_row(random, shape.key_width());
      const std::vector<float> value = random_row(random, shape.key_width());
      testing::put_rows(cache, sequence, layer, sequence.length() + i,
                        {key.data(), 1, shape.key_width()}, {value.data(), 1, shape.key_width()},
                        &stage);
      keys.push_back(kept_as(type, key));
      values.push_back(kept_as(type, value));
      const std::vector<float> query = random_row(random, shape.query_width());
      queries.insert(queries.end(), query.begin(), query.end());
    }
    const KvView view = cache.view(sequence, layer, &stage);
    ASSERT_EQ(keys_and_values(view.cache()).type, type);
    for (const std::byte* bytes : keys_and_values(view.cache()).keys) {
      ASSERT_TRUE(!spilled || !bytes ||
                  (bytes >= buffer.bytes().data() && bytes < &buffer.bytes().back()));
    }
    for (const Processor* ops : {&reference_processor(), &cpu_processor()}) {
      std::vector<float> out(queries.size());
      const AttentionArguments arguments{.output = {out.data(), tokens, shape.query_width()},
                                         .queries = {queries.data(), tokens, shape.query_width()},
                                         .query_heads = shape.query_heads,
                                         .kv_heads = shape.kv_heads,
                                         .cache = keys_and_values(view.cache()),
                                         .first_position = sequence.length(),
                                         .scale = 0.5f,
                                         .window = layer_window,
                                         .sinks = {},
                                         .precision = Precision::f32};
      ops->attention(std::span(&arguments, 1));
      for (int64_t i = 0; i < tokens; ++i) {
        const int64_t position = sequence.length() + i;
        std::vector<bool> seen;
        for (int64_t p = 0; p <= position; ++p) {
          const bool in_cache = kept.window == 0 || p < kept.sinks || position - p < kept.window;
          seen.push_back(in_cache && (layer_window == 0 || position - p < layer_window));
        }
        const auto begin = queries.begin() + i * shape.query_width();
        const std::vector<double> expected = masked_attention(
            std::vector<float>(begin, begin + shape.query_width()), keys, values, seen, shape);
        for (size_t c = 0; c < expected.size(); ++c) {
          ASSERT_NEAR(out[static_cast<size_t>(i * shape.query_width()) + c], expected[c], 1e-5)
              << "position " << position;
        }
      }
    }
    cache.store(stage);
    cache.commit(sequence, tokens);
    ASSERT_LE(cache.pages_in_use() + cache.spilled_pages(), cache.pages_needed(150, 10));
  }
}

INSTANTIATE_TEST_SUITE_P(Kept, StreamingAttention,
                         ::testing::Combine(::testing::Values(StreamingCase{{0, 0}, 0, false},
                                                              StreamingCase{{0, 0}, 7, true},
                                                              StreamingCase{{4, 30}, 0, false},
                                                              StreamingCase{{4, 30}, 0, true},
                                                              StreamingCase{{0, 17}, 0, true},
                                                              StreamingCase{{33, 1}, 0, false},
                                                              StreamingCase{{20, 16}, 25, true},
                                                              StreamingCase{{4, 30}, 10, false},
                                                              StreamingCase{{200, 50}, 0, true}),
                                            testing::both_types()));

}  // namespace
}  // namespace klotski
