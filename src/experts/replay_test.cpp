#include "experts/replay.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <random>

#include "base/error.h"
#include "experts/token_predictor.h"

namespace klotski {
namespace {

class Replay : public ::testing::Test {
 protected:
  RoutingTraceShape shape_{.model = "test", .layers = {{LayerId(1), 4, 2}, {LayerId(2), 3, 1}}};
  std::string path_ =
      (std::filesystem::path(testing::TempDir()) / (std::to_string(::getpid()) + "_replay.trace"))
          .string();

  void TearDown() override { std::filesystem::remove(path_); }
  void write(const std::vector<RoutingRecord>& records) {
    std::ofstream out(path_, std::ios::binary);
    RoutingTraceWriter writer(out, shape_);
    for (const RoutingRecord& record : records) writer.append(record);
  }
  static RoutingRecord record(uint32_t sequence, TokenId token,
                              std::initializer_list<int64_t> experts) {
    RoutingRecord made{.sequence = sequence, .position = 0, .token = token, .choices = {}};
    for (const int64_t expert : experts) made.choices.emplace_back(expert);
    return made;
  }
};

TEST_F(Replay, RequestsComeByRecordLayerAndRank) {
  write({record(7, 1, {3, 0, 2}), record(9, 1, {1, 2, 0}), record(7, 1, {0, 1, 1})});
  const ReplayTrace trace(std::vector{path_});
  EXPECT_EQ(trace.shape().experts(), 7);
  const std::vector<ExpertKey> keys = trace.requests();
  ASSERT_EQ(keys.size(), 9u);
  EXPECT_EQ(keys[0], (ExpertKey{LayerId(1), ExpertId(3)}));
  EXPECT_EQ(keys[2], (ExpertKey{LayerId(2), ExpertId(2)}));
  EXPECT_EQ(keys[3], (ExpertKey{LayerId(1), ExpertId(1)}));
  EXPECT_FALSE(trace.ends_sequence(0));
  EXPECT_TRUE(trace.ends_sequence(1));
  EXPECT_TRUE(trace.ends_sequence(2));
  const ReplayTrace twice(std::vector{path_, path_});
  EXPECT_NE(twice.token(0).sequence, twice.token(3).sequence) << "of another file";
}

// Layer 1 asks for 3 and 0, layer 2 for 2, twice the same: with three slots all of the second
// token's requests hit, with two slots lru misses every time.
TEST_F(Replay, LeastRecentlyUsedWorkedByHand) {
  write({record(0, 1, {3, 0, 2}), record(0, 1, {3, 0, 2})});
  const ReplayTrace trace(std::vector{path_});
  std::vector<std::unique_ptr<ExpertCache>> caches;
  caches.push_back(std::make_unique<ExpertCache>(3, make_eviction_rule("lru", 3)));
  caches.push_back(std::make_unique<ExpertCache>(2, make_eviction_rule("lru", 3)));
  replay(trace, nullptr, caches);
  EXPECT_EQ(caches[0]->counters().hits, 3);
  EXPECT_EQ(caches[1]->counters().hits, 0);
  EXPECT_EQ(caches[1]->counters().requests(), 6);
}

// Whatever predicts, every request is answered, and rules that do not ask have the same hits.
TEST_F(Replay, PredictorsChangeOnlyRulesThatAsk) {
  std::mt19937 random(1);
  std::vector<RoutingRecord> records;
  for (uint32_t i = 0; i < 200; ++i) {
    const auto first = static_cast<int64_t>(random() % 4);
    records.push_back(record(i / 20, static_cast<TokenId>(random() % 5),
                             {first, (first + 1) % 4, static_cast<int64_t>(random() % 3)}));
  }
  write(records);
  const std::vector<ReplayTrace> learn_from = {ReplayTrace(std::vector{path_})};
  const PredictorChoice kept{
      .history = std::make_shared<ActivationHistory>(shape_, 4),
      .network = std::make_shared<PathNetwork>(PathNetworkShape{.routing = shape_})};
  ReplayPredictors predictors(shape_, kept);
  const auto hits = [&](ExpertPredictor* predictor) {
    std::vector<std::unique_ptr<ExpertCache>> caches;
    std::vector<int64_t> found;
    for (const std::string_view rule : eviction_rule_names()) {
      caches.push_back(std::make_unique<ExpertCache>(3, make_eviction_rule(rule, 3)));
    }
    replay(learn_from[0], predictor, caches);
    for (const auto& cache : caches) {
      EXPECT_EQ(cache->counters().requests(), 600);
      if (!cache->uses_expectations()) found.push_back(cache->counters().hits);
    }
    return found;
  };
  const std::vector<int64_t> without = hits(nullptr);
  for (const std::string_view name : predictors.names()) {
    EXPECT_EQ(hits(predictors.make(name, learn_from).get()), without) << name;
  }
  EXPECT_EQ(kept.history->decode.size(), 4);
  EXPECT_THROW(predictors.make("oracle", learn_from), Error);
}

TEST_F(Replay, TracesOfDifferentModelsAreRefused) {
  write({record(0, 1, {3, 0, 2})});
  const std::string other = path_ + "2";
  {
    std::ofstream out(other, std::ios::binary);
    RoutingTraceWriter writer(out, {.model = "other", .layers = {{LayerId(0), 4, 2}}});
  }
  EXPECT_THROW(ReplayTrace(std::vector{path_, other}), Error);
  std::filesystem::remove(other);
}

// Token 1 chose 0 and 1 six times, token 2 chose 2 and 3 twice. Popularity: 6/8, 6/8, 2/8, 2/8 of
// the tokens, counted as four tokens: (6 + 3) / 10 for token 1 and expert 0, (0 + 3) / 6 for token
// 2; a token never seen has the popularity.
TEST_F(Replay, TokensPredictWorkedByHand) {
  TokenPredictor predictor(shape_);
  const auto pass = [&](TokenId token, std::initializer_list<int64_t> layer1, int64_t layer2) {
    predictor.begin_pass({{.token = token}});
    std::vector<ExpertId> chosen;
    for (const int64_t expert : layer1) chosen.emplace_back(expert);
    predictor.observe(LayerId(1), chosen);
    predictor.observe(LayerId(2), std::vector<ExpertId>{ExpertId(layer2)});
  };
  predictor.begin_pass({{.token = 1}});
  EXPECT_EQ(predictor.group_probabilities(LayerId(1)), (std::vector<double>{0, 0, 0, 0}));
  for (int i = 0; i < 6; ++i) pass(1, {0, 1}, 0);
  for (int i = 0; i < 2; ++i) pass(2, {2, 3}, 1);
  const auto probability = [&](TokenId token, size_t expert) {
    predictor.begin_pass({{.token = token}});
    return predictor.group_probabilities(LayerId(1))[expert];
  };
  EXPECT_NEAR(probability(1, 0), 0.9, 1e-6);
  EXPECT_NEAR(probability(2, 0), 0.5, 1e-6);
  EXPECT_NEAR(probability(2, 3), 0.5, 1e-6);
  EXPECT_NEAR(probability(77, 0), 0.75, 1e-6);
}

}  // namespace
}  // namespace klotski
