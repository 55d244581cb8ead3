#include <gtest/gtest.h>

#include <cstring>

#include "kernels/cpu/testing.h"

namespace klotski {
namespace {

// Scores of rounded queries are off by 2^-9 of their magnitude, on average far less, and the shares
// by as much as the scores.
constexpr double kRoundedQueries = 5e-2;

// Keys or values in pages that lie in memory in the order of their own choice.
struct Pages {
  Weights stored;
  std::vector<std::byte*> pages;

  Pages(const std::vector<float>& values, DType dtype, int64_t count)
      : stored(values, dtype, {count, static_cast<int64_t>(values.size()) / count}) {
    const size_t bytes = stored.bytes.size() / static_cast<size_t>(count);
    for (size_t page = 0; page < static_cast<size_t>(count); ++page) {
      pages.push_back(stored.bytes.data() + (static_cast<size_t>(count) - 1 - page) * bytes);
    }
  }
};

enum class Size { small, wide, far };

// One sequence with `tokens` queries after `past` cached positions.
struct Sequence {
  int64_t kv_heads, group, head_dim, value_dim, past, tokens, page_tokens;
  int64_t window = 0;
  int64_t chunk = 0;
  int64_t kept_prefix = 0;
  int64_t kept_window = 0;
  int64_t seen_begin = 0;
  int64_t seen_end = 0;
  int64_t bias_reach = 0;
  std::vector<float> bias;
  DType dtype;
  Precision precision;
  std::vector<float> queries, sinks;
  std::vector<Pages> cache;  // keys, values, absolute values

  Sequence(std::mt19937& random, Size size)
      : kv_heads(up_to(random, 3)),
        group(size == Size::small && random() % 6 == 0 ? 60 + up_to(random, 300)
                                                       : up_to(random, 8)),
        head_dim(size == Size::wide ? 16 * up_to(random, 16) : 2 * up_to(random, 20) - 1),
        value_dim(random() % 2 == 0 ? head_dim : up_to(random, 2 * head_dim)),
        past(up_to(random, size == Size::far ? 1300 : 60) - 1),
        tokens(up_to(random, size == Size::small ? 6 : 80)),
        page_tokens(up_to(random, 16)),
        dtype(random() % 2 == 0 ? DType::F32 : DType::BF16),
        precision(random() % 2 == 0 ? Precision::f32 : Precision::bf16) {
    constexpr int64_t kMostWork = 3'000'000;  // multiplications
    const int64_t token_work = (past + tokens) * kv_heads * group * std::max(head_dim, value_dim);
    tokens = std::clamp<int64_t>(kMostWork / token_work, 1, tokens);
    const int64_t end = past + tokens;
    if (random() % 2 == 0) window = up_to(random, end + 3);
    if (random() % 3 == 0) chunk = up_to(random, end + 3);
    if (random() % 3 == 0) {
      kept_prefix = up_to(random, 12) - 1;
      kept_window = up_to(random, size == Size::far ? 600 : 20);
    }
    const int64_t pages = (end + page_tokens - 1) / page_tokens;
    const int64_t heads = pages * page_tokens * kv_heads;
    const auto seed = static_cast<unsigned>(random());
    queries = random_floats(tokens * query_width(), seed);
    if (random() % 2 == 0) sinks = random_floats(kv_heads * group, seed + 3);
    const std::vector<float> values = random_floats(heads * value_dim, seed + 2);
    cache.emplace_back(random_floats(heads * head_dim, seed + 1), dtype, pages);
    cache.emplace_back(values, dtype, pages);
    cache.emplace_back(absolute(values), dtype, pages);
    forget_unseen_pages();
  }

  int64_t query_width() const { return kv_heads * group * head_dim; }
  int64_t width() const { return kv_heads * group * value_dim; }  // numbers of an output row

  void forget_unseen_pages() {
    std::vector<bool> seen(cache[0].pages.size(), kept_window == 0);
    for (int64_t token = 0; token < tokens; ++token) {
      const VisiblePositions range = visible_positions(arguments({nullptr, 0, 0}, {0, 0}), token);
      for (int64_t p = 0; p < range.end; ++p) {
        const bool sees = (p >= range.prefix_begin && p < range.prefix_end) || p >= range.begin;
        if (sees) seen[static_cast<size_t>(p / page_tokens)] = true;
      }
    }
    for (Pages& kind : cache) {
      for (size_t page = 0; page < seen.size(); ++page) {
        if (!seen[page]) kind.pages[page] = nullptr;
      }
    }
  }

  // Arguments for `rows.second` tokens from `rows.first` on.
  AttentionArguments arguments(Rows out, std::pair<int64_t, int64_t> rows) const {
    return {.output = out,
            .queries = {queries.data() + rows.first * query_width(), rows.second, query_width()},
            .query_heads = kv_heads * group,
            .kv_heads = kv_heads,
            .cache = {.keys = cache[0].pages,
                      .values = cache[1].pages,
                      .type = dtype,
                      .page_tokens = page_tokens,
                      .kept_prefix = kept_prefix,
                      .kept_window = kept_window},
            .first_position = past + rows.first,
            .scale = 1.0f / std::sqrt(static_cast<float>(head_dim)),
            .window = window,
            .chunk = chunk,
            .seen_begin = seen_begin,
            .seen_end = seen_end,
            .position_bias = bias,
            .bias_reach = bias_reach,
            .sinks = sinks,
            .precision = precision};
  }

  // Makes the keys and values of a position no numbers.
  void spoil(int64_t position) {
    for (Pages& kind : cache) {
      const int64_t dim = &kind == &cache[0] ? head_dim : value_dim;
      const int64_t row = kv_heads * dim * bytes_per_element(dtype);
      const std::byte* page = kind.pages[static_cast<size_t>(position / page_tokens)];
      std::byte* stored = kind.stored.bytes.data() + (page - kind.stored.bytes.data());
      std::memset(stored + position % page_tokens * row, 0xFF, static_cast<size_t>(row));
    }
  }

  std::vector<float> reference(Precision with, bool of_magnitudes) const {
    std::vector<float> out(static_cast<size_t>(tokens * width()), kPoison);
    AttentionArguments all = arguments({out.data(), tokens, width()}, {0, tokens});
    all.precision = with;
    if (of_magnitudes) all.cache.values = cache[2].pages;
    reference_processor().attention(std::span(&all, 1));
    return out;
  }

  Output run(const CpuProcessor& processor, std::pair<int64_t, int64_t> rows) const {
    Output out(rows.second, width());
    const AttentionArguments some = arguments(out.rows(), rows);
    processor.attention(std::span(&some, 1));
    return out;
  }
};

std::ostream& operator<<(std::ostream& to, const Sequence& s) {
  return to << s.tokens << " tokens after " << s.past << ", " << s.kv_heads << " x " << s.group
            << " heads of " << s.head_dim << " and " << s.value_dim << ", pages of "
            << s.page_tokens << " " << dtype_name(s.dtype) << ", window " << s.window << ", kept "
            << s.kept_prefix << " + " << s.kept_window << (s.sinks.empty() ? "" : ", sinks")
            << (s.precision == Precision::bf16 ? ", rounded" : "");
}

void check_sequence(const Sequence& sequence, std::mt19937& random) {
  const std::vector<float> exact = sequence.reference(Precision::f32, false);
  const std::vector<float> rounded = sequence.reference(Precision::bf16, false);
  const std::vector<float> magnitudes = sequence.reference(Precision::f32, true);
  SameEverywhere same;
  with_every_processor([&](const CpuProcessor& processor) {
    const Output all = sequence.run(processor, {0, sequence.tokens});
    const bool rounding = rounds(processor, sequence.dtype, sequence.precision);
    expect_close(all.values(), rounding ? rounded : exact, magnitudes, kSameInputs);
    expect_close(all.values(), exact, magnitudes, kRoundedQueries);
    ASSERT_TRUE(all.guards_are_whole());
    ASSERT_TRUE(same.holds(processor, all.values()));
    int64_t tokens = 0;
    const int64_t most = up_to(random, 2) * up_to(random, 20);
    for (int64_t first = 0; first < sequence.tokens; first += tokens) {
      tokens = std::min(up_to(random, most), sequence.tokens - first);
      const Output some = sequence.run(processor, {first, tokens});
      ASSERT_TRUE(same_bits(some.values(), all.values(first, tokens)))
          << tokens << " tokens from " << first;
      ASSERT_TRUE(some.guards_are_whole());
    }
  });
}

TEST(CpuAttention, AgreesWithTheReferenceAndWithItselfInAnyCompany) {
  std::mt19937 random(5);
  for (int round = 0; round < 60; ++round) {
    const Size size = round % 6 == 0 ? Size::wide : round % 6 == 3 ? Size::far : Size::small;
    const Sequence sequence(random, size);
    SCOPED_TRACE(testing::Message() << "round " << round << ": " << sequence);
    check_sequence(sequence, random);
    if (testing::Test::HasFatalFailure()) return;
  }
}

// Tokens of an encoder see all of its input, those of a decoder the encoder's positions alone or
// none of them; distances may bias the scores.
TEST(CpuAttention, SeesTheEncodersPositionsOrTheDecodersWithBiases) {
  std::mt19937 random(11);
  for (int round = 0; round < 40; ++round) {
    Sequence sequence(random, round % 5 == 0 ? Size::far : Size::small);
    if (sequence.kept_window > 0) continue;
    sequence.window = 0;
    sequence.chunk = 0;
    if (round % 2 == 0) {
      sequence.seen_end = up_to(random, sequence.past + sequence.tokens);
    } else {
      sequence.seen_begin = up_to(random, sequence.past + 1) - 1;
    }
    if (round % 3 > 0) {
      sequence.bias_reach = up_to(random, 40);
      sequence.bias = random_floats(
          (2 * sequence.bias_reach + 1) * sequence.kv_heads * sequence.group, unsigned(round));
    }
    SCOPED_TRACE(testing::Message() << "round " << round << ": " << sequence << ", sees "
                                    << sequence.seen_begin << " to " << sequence.seen_end);
    check_sequence(sequence, random);
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST(CpuAttention, SequencesDoNotKnowOfEachOther) {
  std::mt19937 random(6);
  for (int round = 0; round < 5; ++round) {
    std::vector<Sequence> sequences;
    for (int i = 0; i < 6; ++i) {
      sequences.emplace_back(random, i == round ? Size::far : Size::small);
    }
    with_every_processor([&](const CpuProcessor& processor) {
      std::vector<Output> outputs;
      std::vector<AttentionArguments> together;
      for (const Sequence& sequence : sequences) {
        outputs.emplace_back(sequence.tokens, sequence.width());
        together.push_back(sequence.arguments(outputs.back().rows(), {0, sequence.tokens}));
      }
      processor.attention(together);
      for (size_t i = 0; i < sequences.size(); ++i) {
        const Output alone = sequences[i].run(processor, {0, sequences[i].tokens});
        ASSERT_TRUE(same_bits(outputs[i].values(), alone.values())) << sequences[i];
        ASSERT_TRUE(outputs[i].guards_are_whole());
      }
    });
  }
}

// Scores far apart: shares are relative to the largest so far, chunk by chunk.
TEST(CpuAttention, LargeScoresNeitherOverflowNorVanish) {
  std::mt19937 random(8);
  for (int round = 0; round < 12; ++round) {
    Sequence sequence(random, Size::far);
    for (float& query : sequence.queries) query *= 100.0f;
    sequence.precision = Precision::f32;
    const std::vector<float> expected = sequence.reference(Precision::f32, false);
    const std::vector<float> magnitudes(expected.size(), 5.0f);  // magnitude of a value
    with_every_processor([&](const CpuProcessor& processor) {
      const Output all = sequence.run(processor, {0, sequence.tokens});
      expect_close(all.values(), expected, magnitudes, 100 * kSameInputs);
    });
  }
}

// Keys and values of the last token that are no numbers: tokens before it see none of them.
TEST(CpuAttention, WhatIsNotFiniteStaysWithThoseWhoSeeIt) {
  std::mt19937 random(9);
  for (int round = 0; round < 12; ++round) {
    Sequence sequence(random, round % 3 == 0 ? Size::far : Size::small);
    const int64_t before = sequence.tokens - 1;
    SCOPED_TRACE(testing::Message() << "round " << round << ": " << sequence);
    std::vector<Output> clean;
    with_every_processor([&](const CpuProcessor& processor) {
      clean.push_back(sequence.run(processor, {0, sequence.tokens}));
    });
    sequence.spoil(sequence.past + before);
    size_t machines = 0;
    with_every_processor([&](const CpuProcessor& processor) {
      const Output all = sequence.run(processor, {0, sequence.tokens});
      ASSERT_TRUE(same_bits(all.values(0, before), clean[machines++].values(0, before)));
      ASSERT_TRUE(std::isnan(all.values(before, 1)[0]));
    });
  }
}

TEST(CpuAttention, NoTokensAreNoWork) {
  std::mt19937 random(7);
  const Sequence sequence(random, Size::small);
  with_every_processor([&](const CpuProcessor& processor) {
    processor.attention({});
    const AttentionArguments none = sequence.arguments({nullptr, 0, sequence.width()}, {0, 0});
    processor.attention(std::span(&none, 1));
  });
}

// Values in the keys' own memory give the bits that a copy of them gives.
TEST(CpuAttention, ValuesMayBeTheFirstNumbersOfKeys) {
  constexpr int64_t kDim = 48, kValueDim = 32, kPositions = 70, kPageTokens = 16, kPages = 5;
  for (const int64_t kv_heads : {1, 2}) {
    for (const DType dtype : {DType::F32, DType::BF16}) {
      const auto numbers = random_floats(kPages * kPageTokens * kv_heads * kDim, 1);
      const Pages keys(numbers, dtype, kPages);
      const Pages values(columns_of(numbers, kDim, 0, kValueDim), dtype, kPages);
      const int64_t heads = kv_heads * 70;
      const auto queries = random_floats(3 * heads * kDim, 2);
      const auto attend = [&](const Processor& processor, bool copied) {
        std::vector<float> out(static_cast<size_t>(3 * heads * kValueDim), kPoison);
        const AttentionArguments arguments{
            .output = {out.data(), 3, heads * kValueDim},
            .queries = {queries.data(), 3, heads * kDim},
            .query_heads = heads,
            .kv_heads = kv_heads,
            .cache = {.keys = keys.pages,
                      .values = copied ? std::span<std::byte* const>(values.pages)
                                       : std::span<std::byte* const>(),
                      .type = dtype,
                      .page_tokens = kPageTokens},
            .first_position = kPositions - 3,
            .scale = 0.2f};
        processor.attention(std::span(&arguments, 1));
        return out;
      };
      EXPECT_TRUE(
          same_bits(attend(reference_processor(), false), attend(reference_processor(), true)));
      with_every_processor([&](const CpuProcessor& processor) {
        EXPECT_TRUE(same_bits(attend(processor, false), attend(processor, true)));
      });
    }
  }
}

}  // namespace
}  // namespace klotski
