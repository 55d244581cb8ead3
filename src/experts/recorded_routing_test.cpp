#include "experts/recorded_routing.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "base/error.h"
#include "base/testing.h"

namespace klotski {
namespace {

// Two routed layers of a model whose layers 0 and 2 are dense.
const RoutingTraceShape kShape{"tiny", {{LayerId(1), 4, 2}, {LayerId(3), 8, 1}}};

struct Written {
  uint32_t sequence;
  uint32_t position;
  TokenId token;
};

// A trace in which a token goes to experts that follow from its id.
class RecordedRoutingTest : public ::testing::Test {
 protected:
  ~RecordedRoutingTest() override { std::filesystem::remove(file_); }

  static std::vector<ExpertId> experts_of(TokenId token) {
    return {ExpertId(token % 4), ExpertId((token + 1) % 4), ExpertId(token % 8)};
  }

  std::vector<std::filesystem::path> trace(const std::vector<Written>& records) const {
    std::ofstream out(file_, std::ios::binary);
    RoutingTraceWriter writer(out, kShape);
    for (const Written& one : records) {
      writer.append({one.sequence, one.position, one.token, experts_of(one.token)});
    }
    return {file_};
  }

  std::filesystem::path file_ = std::filesystem::temp_directory_path() /
                                ("klotski-recorded-" + std::to_string(::getpid()) + ".trace");
};

TEST_F(RecordedRoutingTest, StretchesAreCutFromEachSequence) {
  // Sequences 7 and 3 take turns, as those of a batch do; 7 has five tokens, 3 has two.
  const auto files =
      trace({{7, 0, 10}, {3, 0, 20}, {7, 1, 11}, {3, 1, 21}, {7, 2, 12}, {7, 3, 13}, {7, 4, 14}});
  const std::vector<TracedSequence> stretches = read_stretches(files, kShape, 2).sequences;
  ASSERT_EQ(stretches.size(), 3u);
  EXPECT_EQ(stretches[0].tokens, (std::vector<TokenId>{10, 11}));
  EXPECT_EQ(stretches[1].tokens, (std::vector<TokenId>{12, 13}));
  EXPECT_EQ(stretches[2].tokens, (std::vector<TokenId>{20, 21}));
  EXPECT_EQ(stretches[1].choices.size(), 6u);
}

TEST_F(RecordedRoutingTest, ChoicesAreThoseOfTheTokenInTheLayer) {
  const auto files = trace({{0, 5, 10}, {0, 6, 11}, {0, 7, 12}, {0, 8, 13}});
  const RecordedRouting routing(read_stretches(files, kShape, 2));
  const auto expect = [&](int64_t sequence, int64_t position, TokenId token) {
    std::vector<ExpertId> found;
    for (const int layer : {1, 3}) {
      for (const uint16_t expert : routing.choices(sequence, position, LayerId(layer))) {
        found.emplace_back(expert);
      }
    }
    EXPECT_EQ(found, experts_of(token));
  };
  expect(0, 0, 10);
  expect(0, 1, 11);
  expect(1, 0, 12);
  expect(1, 1, 13);
  expect(2, 1, 11);  // begins again with the first stretch
  EXPECT_THROW(routing.choices(0, 2, LayerId(1)), Error);
}

TEST_F(RecordedRoutingTest, RefusesWhatCannotBeFollowed) {
  const auto refused = [&](const std::vector<Written>& records, const RoutingTraceShape& shape,
                           int64_t tokens) {
    const auto files = trace(records);
    return refusal([&] { read_stretches(files, shape, tokens); });
  };
  const std::vector<Written> two = {{0, 0, 1}, {0, 1, 2}};
  EXPECT_NE(refused(two, kShape, 3).find("at least 3 tokens, found none longer than 2"),
            std::string::npos);
  EXPECT_NE(refused({{0, 0, 1}, {0, 2, 2}}, kShape, 1).find("expected position 1, found 2"),
            std::string::npos);
  RoutingTraceShape other = kShape;
  other.layers[1].experts = 16;
  EXPECT_NE(refused(two, other, 1).find("routed layers as the model's"), std::string::npos);
}

}  // namespace
}  // namespace klotski
