#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <ostream>
#include <random>
#include <vector>

#include "kernels/cuda/testing.h"
#include "kernels/ops.h"
#include "tensor/half.h"

namespace klotski {
namespace {

class CudaAttention : public GpuTest {};

// The error of a head's output relative to its length: exact products, and with shares rounded to
// bf16 (2^-9 each, in any direction).
constexpr double kExact = 1e-4;
constexpr double kRounded = 1e-2;

struct Case {
  int64_t kv_heads = 1, group = 1, head_dim = 64, past = 0, tokens = 1;
  DType type = DType::BF16;
  Precision precision = Precision::bf16;
  int64_t window = 0, chunk = 0, kept_prefix = 0, kept_window = 0;
  bool sinks = false;
  int64_t page_tokens = 16;
  int64_t value_dim = 0;  // 0: as head_dim
  bool values_in_keys = false;
  int64_t seen_begin = 0, seen_end = 0;
  int64_t bias_reach = 0;  // 0: no bias

  int64_t query_heads() const { return kv_heads * group; }
  // Numbers of a value head.
  int64_t value_width() const { return value_dim > 0 ? value_dim : head_dim; }
  int64_t width() const { return query_heads() * head_dim; }
  int64_t output_width() const { return query_heads() * value_width(); }
  int64_t page_bytes(int64_t dim) const {
    return page_tokens * kv_heads * dim * bytes_per_element(type);
  }
  int64_t pages() const { return (past + tokens + page_tokens - 1) / page_tokens; }
};

std::ostream& operator<<(std::ostream& to, const Case& c) {
  return to << c.tokens << " tokens after " << c.past << ", " << c.kv_heads << " x " << c.group
            << " heads of " << c.head_dim << " and " << c.value_width() << ", pages of "
            << c.page_tokens << " " << dtype_name(c.type) << ", window " << c.window << ", kept "
            << c.kept_prefix << " + " << c.kept_window << (c.sinks ? ", sinks" : "")
            << (c.precision == Precision::bf16 ? ", rounded" : "");
}

// Keys or values in pages, the last page first, with `dim` elements a head. Positions that no token
// sees are NaNs, and a page without any visible position is null.
class Pages {
 public:
  Pages(std::mt19937& random, const Case& shape, int64_t dim, const std::vector<bool>& seen)
      : host_(filled(random, shape, shape.page_bytes(dim), seen)),
        device_{std::span<const std::byte>(host_)} {
    for (int64_t page = 0; page < shape.pages(); ++page) {
      const auto begin = seen.begin() + page * shape.page_tokens;
      const auto end =
          seen.begin() + std::min(shape.past + shape.tokens, (page + 1) * shape.page_tokens);
      const bool any = std::find(begin, end, true) != end;
      const int64_t offset = (shape.pages() - 1 - page) * shape.page_bytes(dim);
      host_pages_.push_back(any ? host_.data() + offset : nullptr);
      device_pages_.push_back(any ? device_.data() + offset : nullptr);
    }
  }

  std::span<std::byte* const> host() const { return host_pages_; }
  std::span<std::byte* const> device() const { return device_pages_; }

 private:
  static std::vector<std::byte> filled(std::mt19937& random, const Case& shape, int64_t page_bytes,
                                       const std::vector<bool>& seen) {
    std::vector<std::byte> all(static_cast<size_t>(shape.pages() * page_bytes), std::byte{0xFF});
    const int64_t row_bytes = page_bytes / shape.page_tokens;
    for (int64_t position = 0; position < shape.past + shape.tokens; ++position) {
      if (!seen[static_cast<size_t>(position)]) continue;
      const int64_t page = shape.pages() - 1 - position / shape.page_tokens;
      const int64_t place = position % shape.page_tokens;
      fill(random, shape.type, all.data() + page * page_bytes + place * row_bytes, row_bytes);
    }
    return all;
  }

  static void fill(std::mt19937& random, DType type, std::byte* row, int64_t bytes) {
    const int64_t element = bytes_per_element(type);
    const std::vector<float> values = random_floats(random, bytes / element);
    for (size_t i = 0; i < values.size(); ++i) {
      const uint16_t bits = float_to_bf16(values[i]);
      const void* from = type == DType::BF16 ? static_cast<const void*>(&bits) : &values[i];
      std::memcpy(row + static_cast<int64_t>(i) * element, from, static_cast<size_t>(element));
    }
  }

  std::vector<std::byte> host_;
  DeviceArray<std::byte> device_;
  std::vector<std::byte*> host_pages_;
  std::vector<std::byte*> device_pages_;
};

class Sequence {
 public:
  Sequence(std::mt19937& random, const Case& shape)
      : shape_(shape),
        queries_(random_floats(random, shape.tokens * shape.width())),
        sinks_(random_floats(random, shape.query_heads())),
        keys_(random, shape, shape.head_dim, seen()),
        values_(random, shape, shape.value_width(), seen()),
        device_queries_{std::span<const float>(queries_)},
        device_sinks_{std::span<const float>(sinks_)},
        bias_(random_floats(random, (2 * shape.bias_reach + 1) * shape.query_heads())),
        device_bias_{std::span<const float>(bias_)},
        output_(static_cast<size_t>(shape.tokens * shape.output_width())) {}

  const Case& shape() const { return shape_; }

  AttentionArguments on_device() {
    AttentionArguments all = plain();
    all.output.data = output_.data();
    all.queries.data = device_queries_.data();
    all.cache.keys = keys_.device();
    if (!shape_.values_in_keys) all.cache.values = values_.device();
    if (shape_.sinks) all.sinks = device_sinks_.span();
    if (shape_.bias_reach > 0) all.position_bias = device_bias_.span();
    return all;
  }

  std::vector<float> found() { return output_.download(); }

  void check() {
    std::vector<float> expected(static_cast<size_t>(shape_.tokens * shape_.output_width()));
    AttentionArguments all = plain();
    all.output.data = expected.data();
    all.queries.data = queries_.data();
    all.cache.keys = keys_.host();
    if (!shape_.values_in_keys) all.cache.values = values_.host();
    if (shape_.sinks) all.sinks = sinks_;
    if (shape_.bias_reach > 0) all.position_bias = bias_;
    reference_processor().attention(std::span<const AttentionArguments>(&all, 1));
    const std::vector<float> result = found();
    const bool rounds = shape_.type == DType::BF16 && shape_.precision == Precision::bf16;
    const auto dim = static_cast<size_t>(shape_.value_width());
    for (size_t row = 0; row < expected.size(); row += dim) {
      double error = 0.0;
      double length = 0.0;
      for (size_t i = row; i < row + dim; ++i) {
        error += std::pow(double{result[i]} - double{expected[i]}, 2);
        length += std::pow(double{expected[i]}, 2);
      }
      const auto head = static_cast<int64_t>(row / dim);
      ASSERT_LE(std::sqrt(error), (rounds ? kRounded : kExact) * std::sqrt(length))
          << "token " << head / shape_.query_heads() << ", head " << head % shape_.query_heads();
    }
  }

 private:
  AttentionArguments plain() const {
    return {.output = {nullptr, shape_.tokens, shape_.output_width()},
            .queries = {nullptr, shape_.tokens, shape_.width()},
            .query_heads = shape_.query_heads(),
            .kv_heads = shape_.kv_heads,
            .cache = {.keys = {},
                      .values = {},
                      .type = shape_.type,
                      .page_tokens = shape_.page_tokens,
                      .kept_prefix = shape_.kept_prefix,
                      .kept_window = shape_.kept_window},
            .first_position = shape_.past,
            .scale = 1.0f / std::sqrt(static_cast<float>(shape_.head_dim)),
            .window = shape_.window,
            .chunk = shape_.chunk,
            .seen_begin = shape_.seen_begin,
            .seen_end = shape_.seen_end,
            .position_bias = {},
            .bias_reach = shape_.bias_reach,
            .sinks = {},
            .precision = shape_.precision};
  }

  // For every position: does any token see it?
  std::vector<bool> seen() const {
    std::vector<bool> seen(static_cast<size_t>(shape_.past + shape_.tokens));
    for (int64_t token = 0; token < shape_.tokens; ++token) {
      const VisiblePositions range = visible_positions(plain(), token);
      for (int64_t p = range.prefix_begin; p < range.prefix_end; ++p) {
        seen[static_cast<size_t>(p)] = true;
      }
      for (int64_t p = range.begin; p < range.end; ++p) seen[static_cast<size_t>(p)] = true;
    }
    return seen;
  }

  Case shape_;
  std::vector<float> queries_;
  std::vector<float> sinks_;
  Pages keys_;
  Pages values_;
  DeviceArray<float> device_queries_;
  DeviceArray<float> device_sinks_;
  std::vector<float> bias_;
  DeviceArray<float> device_bias_;
  DeviceArray<float> output_;
};

using Sequences = std::vector<std::unique_ptr<Sequence>>;

Sequences make(std::mt19937& random, const std::vector<Case>& shapes) {
  Sequences sequences;
  for (const Case& shape : shapes) sequences.push_back(std::make_unique<Sequence>(random, shape));
  return sequences;
}

void run(const Processor& ops, const Sequences& sequences) {
  std::vector<AttentionArguments> arguments;
  for (const auto& sequence : sequences) arguments.push_back(sequence->on_device());
  ops.attention(arguments);
}

void check(const Sequences& sequences) {
  for (const auto& sequence : sequences) {
    SCOPED_TRACE(testing::Message() << sequence->shape());
    sequence->check();
    if (testing::Test::HasFatalFailure()) return;
  }
}

template <size_t count>
int64_t one_of(std::mt19937& random, const int64_t (&choices)[count]) {
  return choices[random() % count];
}

Case random_case(std::mt19937& random) {
  Case made;
  made.kv_heads = up_to(random, 3);
  made.group = one_of(random, {1, 2, 3, 4, 5, 8, 9});
  made.head_dim = one_of(random, {3, 8, 24, 64, 64, 80, 96, 128, 128, 256});
  made.past = one_of(random, {0, 0, 1, 15, 16, 63, 64, 127, 130, 300});
  made.tokens = random() % 3 == 0 ? 1 : up_to(random, 200);
  made.type = random() % 3 == 0 ? DType::F32 : DType::BF16;
  made.precision = random() % 3 == 0 ? Precision::f32 : Precision::bf16;
  made.sinks = random() % 2 == 0;
  if (random() % 4 == 0) made.page_tokens = one_of(random, {1, 3, 8, 64});
  constexpr int64_t kMostWork = 4'000'000;  // multiplications
  const int64_t token_work = (made.past + made.tokens) * made.width();
  made.tokens = std::clamp<int64_t>(kMostWork / token_work, 1, made.tokens);
  const int64_t end = made.past + made.tokens;
  if (random() % 3 == 0) made.window = up_to(random, end + 3);
  if (random() % 4 == 0) made.chunk = up_to(random, end + 3);
  if (random() % 3 == 0) {
    made.kept_prefix = up_to(random, 70) - 1;
    made.kept_window = up_to(random, 100);
  }
  return made;
}

TEST_F(CudaAttention, AgreesWithTheReference) {
  std::mt19937 random(3);
  for (int round = 0; round < 60; ++round) {
    const Sequences one = make(random, {random_case(random)});
    run(ops(), one);
    check(one);
    if (HasFatalFailure()) return;
  }
}

// Tokens of an encoder see all of its input, those of a decoder the encoder's positions alone or
// none of them; distances may bias the scores.
TEST_F(CudaAttention, SeesTheEncodersPositionsOrTheDecodersWithBiases) {
  std::mt19937 random(12);
  for (int round = 0; round < 40; ++round) {
    Case shape = random_case(random);
    shape.window = shape.chunk = shape.kept_prefix = shape.kept_window = 0;
    if (round % 4 == 1) shape.tokens = 1;
    if (round % 2 == 0) {
      shape.seen_begin = up_to(random, shape.past + 1) - 1;
    } else {
      shape.seen_end = up_to(random, shape.past + shape.tokens);
    }
    if (round % 3 > 0) shape.bias_reach = up_to(random, 40);
    const Sequences one = make(random, {shape});
    run(ops(), one);
    check(one);
    if (HasFatalFailure()) return;
  }
}

TEST_F(CudaAttention, TakesValuesOfAnotherWidthThanKeys) {
  std::mt19937 random(9);
  std::vector<Case> cases = {
      {.kv_heads = 2, .head_dim = 192, .past = 300, .tokens = 20, .value_dim = 128},
      {.kv_heads = 2, .head_dim = 192, .past = 900, .value_dim = 128}};
  for (int i = 0; i < 20; ++i) {
    cases.push_back(random_case(random));
    cases.back().tokens = std::min<int64_t>(cases.back().tokens, 40);
    cases.back().value_dim = one_of(random, {1, 8, 40, 64, 128, 200});
  }
  const Sequences together = make(random, cases);
  run(ops(), together);
  check(together);
}

// Keys of latent attention: of its usual width, of one vector a lane, and of widths for the plain
// way.
TEST_F(CudaAttention, TakesValuesThatAreAPartOfTheKeys) {
  std::mt19937 random(10);
  std::vector<Case> cases;
  for (const int64_t past : {0, 1, 15, 16, 17, 127, 128, 300, 2000}) {
    for (const int64_t group : {1, 2, 7, 16, 20}) {
      cases.push_back({.group = group, .head_dim = 576, .past = past, .value_dim = 512});
    }
  }
  cases.push_back({.group = 128, .head_dim = 576, .past = 9000, .value_dim = 512});
  cases.push_back({.group = 16, .head_dim = 576, .past = 30, .tokens = 40, .value_dim = 512});
  for (int i = 0; i < 40; ++i) {
    cases.push_back(random_case(random));
    Case& made = cases.back();
    made.tokens = std::min<int64_t>(made.tokens, 40);
    made.head_dim = one_of(random, {8, 48, 96, 256, 264, 576, 768, 800, 21});
    made.value_dim = made.head_dim % 8 == 0 ? made.head_dim - 8 * up_to(random, 2) : 17;
    if (made.value_dim <= 0) made.value_dim = made.head_dim;
  }
  for (Case& one : cases) one.values_in_keys = true;
  const Sequences together = make(random, cases);
  run(ops(), together);
  check(together);
}

TEST_F(CudaAttention, AgreesAroundTheEndsOfTilesAndPages) {
  std::mt19937 random(4);
  std::vector<Case> cases;
  for (const int64_t tokens : {1, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129}) {
    for (const int64_t past : {0, 1, 63, 64}) {
      cases.push_back({.group = 1 + tokens % 4, .past = past, .tokens = tokens});
    }
  }
  const Sequences together = make(random, cases);
  run(ops(), together);
  check(together);
}

TEST_F(CudaAttention, TakesLongSequences) {
  std::mt19937 random(5);
  const Sequences together = make(
      random, {{.group = 2, .head_dim = 128, .tokens = 400},
               {.past = 1000, .tokens = 90},
               {.head_dim = 128, .past = 1500, .tokens = 40, .window = 700, .sinks = true},
               {.head_dim = 128, .past = 1500, .tokens = 80, .chunk = 512},
               {.past = 2100, .tokens = 30, .kept_prefix = 4, .kept_window = 300},
               {.past = 2100, .tokens = 30, .window = 500, .kept_prefix = 1700, .kept_window = 80},
               {.kv_heads = 2, .group = 4, .head_dim = 128, .past = 5000},
               {.kv_heads = 2, .group = 4, .past = 9000, .sinks = true},  // several chunks a split
               {.group = 20, .head_dim = 128, .past = 700, .sinks = true},  // more than 16 rows
               {.group = 20, .past = 100, .tokens = 30, .window = 70},
               {.past = 9000, .tokens = 3, .kept_prefix = 200, .kept_window = 8500},
               {.past = 4000, .type = DType::F32, .precision = Precision::f32, .window = 3000}});
  run(ops(), together);
  check(together);
}

TEST_F(CudaAttention, ReadsNothingBetweenTheFirstAndTheLatestPositions) {
  std::mt19937 random(6);
  std::vector<Case> cases;
  for (const int64_t tokens : {1, 5, 20, 70}) {
    for (const int64_t prefix : {0, 3, 16, 66}) {
      for (const int64_t window : {1, 17, 64}) {
        for (const int64_t head_dim : {8, 80}) {
          cases.push_back({.group = 2,
                           .head_dim = head_dim,
                           .past = 250,
                           .tokens = tokens,
                           .kept_prefix = prefix,
                           .kept_window = window});
        }
      }
    }
  }
  const Sequences together = make(random, cases);
  run(ops(), together);
  check(together);
}

// Single tokens and long pieces of every kind in one call: each result equals that of the sequence
// alone.
TEST_F(CudaAttention, SequencesDoNotKnowOfEachOther) {
  std::mt19937 random(7);
  std::vector<Case> cases;
  for (int i = 0; i < 12; ++i) {
    cases.push_back({.kv_heads = 2,
                     .group = 4,
                     .head_dim = 128,
                     .past = up_to(random, 500),
                     .tokens = i % 3 == 0 ? up_to(random, 60) : 1});
    cases.push_back(random_case(random));
    cases.back().tokens = std::min<int64_t>(cases.back().tokens, 50);
  }
  const Sequences sequences = make(random, cases);
  run(ops(), sequences);
  check(sequences);
  if (HasFatalFailure()) return;
  for (const auto& sequence : sequences) {
    const std::vector<float> together = sequence->found();
    const AttentionArguments alone = sequence->on_device();
    ops().attention(std::span<const AttentionArguments>(&alone, 1));
    const std::vector<float> found = sequence->found();
    ASSERT_EQ(std::memcmp(found.data(), together.data(), found.size() * sizeof(float)), 0)
        << sequence->shape();
  }
}

TEST_F(CudaAttention, TakesNothing) {
  std::mt19937 random(8);
  Sequence sequence(random, {});
  ops().attention({});
  AttentionArguments none = sequence.on_device();
  none.queries.count = none.output.count = 0;
  ops().attention(std::span<const AttentionArguments>(&none, 1));
  ops().memory.finish();
}

}  // namespace
}  // namespace klotski
