#include <gtest/gtest.h>

#include "kernels/cpu/testing.h"
#include "kernels/reference/reference_processor.h"

namespace klotski {
namespace {

constexpr int64_t kHeads = 4, kKvHeads = 2, kDim = 3, kValueDim = 5, kPositions = 11, kPage = 4,
                  kFirst = 6;
constexpr int64_t kTokens = kPositions - kFirst;
constexpr int64_t kWidth = kHeads * kDim;
constexpr int64_t kOutWidth = kHeads * kValueDim;
constexpr float kScale = 0.3f;

struct Cache {
  std::vector<float> keys = random_floats(3 * kPage * kKvHeads * kDim, 5);
  std::vector<float> values = random_floats(3 * kPage * kKvHeads * kValueDim, 6);
  std::vector<Weights> stored;
  std::vector<std::byte*> key_pages;
  std::vector<std::byte*> value_pages;
  DType type;

  explicit Cache(DType dtype) : type(dtype) {
    stored.emplace_back(keys, type, Shape{3, kPage * kKvHeads * kDim});
    stored.emplace_back(values, type, Shape{3, kPage * kKvHeads * kValueDim});
    for (size_t page = 0; page < 3; ++page) {
      key_pages.push_back(stored[0].bytes.data() + page * stored[0].bytes.size() / 3);
      value_pages.push_back(stored[1].bytes.data() + page * stored[1].bytes.size() / 3);
    }
    if (type == DType::BF16) {
      for (float& value : keys) value = rounded_to_bf16(value);
      for (float& value : values) value = rounded_to_bf16(value);
    }
  }

  KvPages pages() const {
    return {.keys = key_pages, .values = value_pages, .type = type, .page_tokens = kPage};
  }
};

// Attention of one token in double precision, over plain [position][head][dim] arrays.
template <typename Sees>
std::vector<double> plain_attention(std::span<const float> query, const Cache& cache,
                                    std::span<const float> sinks, const Sees& sees) {
  std::vector<double> out(kOutWidth, 0.0);
  for (int64_t head = 0; head < kHeads; ++head) {
    const int64_t kv_head = head * kKvHeads / kHeads;
    double sum = sinks.empty() ? 0.0 : std::exp(double(sinks[size_t(head)]));
    for (int64_t position = 0; position < kPositions; ++position) {
      if (!sees(position)) continue;
      const auto cached = static_cast<size_t>((position * kKvHeads + kv_head) * kDim);
      const auto own = static_cast<size_t>(head * kDim);
      double score = 0.0;
      for (size_t d = 0; d < kDim; ++d) {
        score += double(query[own + d]) * double(cache.keys[cached + d]);
      }
      const double share = std::exp(score * double(kScale));
      sum += share;
      const auto value = static_cast<size_t>((position * kKvHeads + kv_head) * kValueDim);
      const auto to = static_cast<size_t>(head * kValueDim);
      for (size_t d = 0; d < kValueDim; ++d) out[to + d] += share * double(cache.values[value + d]);
    }
    for (int64_t d = 0; d < kValueDim; ++d) out[size_t(head * kValueDim + d)] /= sum;
  }
  return out;
}

const std::vector<float> queries = random_floats(kTokens * kWidth, 7);

AttentionArguments arguments_of(std::vector<float>& out, const KvPages& pages) {
  out.assign(kTokens * kOutWidth, kPoison);
  return {.output = {out.data(), kTokens, kOutWidth},
          .queries = {queries.data(), kTokens, kWidth},
          .query_heads = kHeads,
          .kv_heads = kKvHeads,
          .cache = pages,
          .first_position = kFirst,
          .scale = kScale};
}

template <typename Sees>
void expect_attention(const AttentionArguments& arguments, std::span<const float> with_queries,
                      const Cache& cache, const Sees& sees) {
  reference_processor().attention(std::span(&arguments, 1));
  for (int64_t token = 0; token < kTokens; ++token) {
    const std::vector<double> expected =
        plain_attention(with_queries.subspan(size_t(token * kWidth), kWidth), cache,
                        arguments.sinks, [&](int64_t p) { return sees(kFirst + token, p); });
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_NEAR(arguments.output.row(token)[i], expected[i], 1e-5) << "token " << token;
    }
  }
}

TEST(ReferenceAttention, IsCausalGroupedWindowedAndKnowsSinks) {
  const std::vector<float> sinks = random_floats(kHeads, 8);
  for (const DType type : {DType::F32, DType::BF16}) {
    const Cache cache(type);
    for (const int64_t window : {0, 1, 3, 100}) {
      for (const bool with_sinks : {false, true}) {
        std::vector<float> out;
        AttentionArguments arguments = arguments_of(out, cache.pages());
        arguments.window = window;
        if (with_sinks) arguments.sinks = sinks;
        expect_attention(arguments, queries, cache, [&](int64_t own, int64_t position) {
          return position <= own && (window == 0 || position > own - window);
        });
      }
    }
  }
}

TEST(ReferenceAttention, SeesTheFirstAndTheLatestOfALossyCache) {
  Cache cache(DType::F32);
  cache.key_pages[1] = nullptr;  // positions 4 to 7: too old for every token from 9 on
  cache.value_pages[1] = nullptr;
  KvPages pages = cache.pages();
  pages.kept_prefix = 3;
  pages.kept_window = 2;
  std::vector<float> out;
  AttentionArguments arguments = arguments_of(out, pages);
  arguments.first_position = 9;
  arguments.output.count = arguments.queries.count = 2;
  reference_processor().attention(std::span(&arguments, 1));
  for (int64_t token = 0; token < 2; ++token) {
    const std::vector<double> expected =
        plain_attention(std::span(queries).subspan(size_t(token * kWidth), kWidth), cache, {},
                        [&](int64_t p) { return p < 3 || (p >= 8 + token && p <= 9 + token); });
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_NEAR(arguments.output.row(token)[i], expected[i], 1e-5) << "token " << token;
    }
  }
}

TEST(ReferenceAttention, RoundsQueriesForBf16KeysOnly) {
  std::vector<float> rounded = queries;
  for (float& value : rounded) value = rounded_to_bf16(value);
  ASSERT_NE(rounded, queries);
  for (const DType type : {DType::F32, DType::BF16}) {
    const Cache cache(type);
    std::vector<float> out;
    AttentionArguments arguments = arguments_of(out, cache.pages());
    arguments.precision = Precision::bf16;
    expect_attention(arguments, type == DType::BF16 ? rounded : queries, cache,
                     [](int64_t own, int64_t position) { return position <= own; });
  }
}

TEST(ReferenceAttention, TakesSeveralSequences) {
  const Cache first(DType::F32);
  const Cache second(DType::BF16);
  std::vector<float> alone[2];
  std::vector<float> together[2];
  const AttentionArguments one = arguments_of(alone[0], first.pages());
  const AttentionArguments other = arguments_of(alone[1], second.pages());
  reference_processor().attention(std::span(&one, 1));
  reference_processor().attention(std::span(&other, 1));
  const AttentionArguments both[] = {arguments_of(together[0], first.pages()),
                                     arguments_of(together[1], second.pages())};
  reference_processor().attention(std::span(both));
  EXPECT_EQ(together[0], alone[0]);
  EXPECT_EQ(together[1], alone[1]);
  EXPECT_NE(together[0], together[1]);
}

}  // namespace
}  // namespace klotski
