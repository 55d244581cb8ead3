#include "experts/activation_predictor.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "base/error.h"
#include "base/file.h"

namespace klotski {
namespace {

RoutingTraceShape activation_shape(int64_t layers, int32_t experts, int32_t top_k) {
  RoutingTraceShape shape{.model = "test", .layers = {}};
  for (int64_t i = 0; i < layers; ++i) shape.layers.push_back({LayerId(i), experts, top_k});
  return shape;
}

// A matrix of these rows.
ActivationMatrix matrix_with(const RoutingTraceShape& shape,
                             const std::vector<std::vector<int>>& rows) {
  ActivationMatrix matrix(shape);
  for (size_t l = 0; l < rows.size(); ++l) {
    for (size_t e = 0; e < rows[l].size(); ++e) matrix.layer(l)[e] = static_cast<float>(rows[l][e]);
  }
  return matrix;
}

double distance_of(const ActivationMatrix& a, const ActivationMatrix& b, size_t layers) {
  return cosine_distance(dot_product(a, b, layers), dot_product(a, a, layers),
                         dot_product(b, b, layers));
}

// (1, 2, 0, 3) and (2, 0, 0, 3): dot 2 + 9 = 11, squares 14 and 13: 1 - 11 / sqrt(182).
TEST(ActivationMatrix, DistanceWorkedByHand) {
  const RoutingTraceShape shape = activation_shape(2, 2, 1);
  const ActivationMatrix a = matrix_with(shape, {{1, 2}, {0, 3}});
  const ActivationMatrix b = matrix_with(shape, {{2, 0}, {0, 3}});
  EXPECT_NEAR(distance_of(a, b, 2), 1.0 - 11.0 / std::sqrt(182.0), 1e-12);
  // In the first layer alone: dot 2, squares 5 and 4.
  EXPECT_NEAR(distance_of(a, b, 1), 1.0 - 2.0 / std::sqrt(20.0), 1e-12);
  EXPECT_NEAR(distance_of(a, a, 2), 0.0, 1e-12);
  EXPECT_EQ(distance_of(a, ActivationMatrix(shape), 2), 1.0) << "nothing is like an empty one";
}

// The paper's figure 5: with room for three, a fourth replaces the third, which it is most like.
TEST(ActivationCollection, TheNewestReplacesTheMostSimilar) {
  const RoutingTraceShape shape = activation_shape(2, 2, 1);
  ActivationCollection collection(shape, 3);
  collection.add(matrix_with(shape, {{3, 0}, {3, 0}}));
  collection.add(matrix_with(shape, {{0, 3}, {0, 3}}));
  collection.add(matrix_with(shape, {{0, 3}, {3, 0}}));
  collection.add(ActivationMatrix(shape));
  EXPECT_EQ(collection.size(), 3) << "an empty matrix is not kept";
  collection.add(matrix_with(shape, {{1, 4}, {5, 0}}));
  ASSERT_EQ(collection.size(), 3);
  EXPECT_EQ(collection[0].layer(0)[0], 3.0f);
  EXPECT_EQ(collection[1].layer(0)[1], 3.0f);
  EXPECT_EQ(collection[2].layer(1)[0], 5.0f);
  EXPECT_EQ(collection.squared(2, 1), 17.0);
  EXPECT_EQ(collection.squared(2, 2), 42.0);
}

class ActivationPrediction : public ::testing::Test {
 protected:
  static std::vector<ExpertId> ids(std::initializer_list<int64_t> values) {
    std::vector<ExpertId> experts;
    for (const int64_t value : values) experts.emplace_back(value);
    return experts;
  }
  static PassToken of(int64_t sequence, int64_t position, bool decodes) {
    return {.sequence = sequence, .position = position, .token = 0, .decodes = decodes};
  }
};

// Two past requests, top-1: A took experts 0 0 0 four times, B took 1 1 1 three times and 1 1 2
// once.
TEST_F(ActivationPrediction, MatchesByTheLayersKnownSoFar) {
  const RoutingTraceShape shape = activation_shape(3, 3, 1);
  ActivationHistory history(shape, 8);
  history.decode.add(matrix_with(shape, {{4, 0, 0}, {4, 0, 0}, {4, 0, 0}}));
  history.decode.add(matrix_with(shape, {{0, 4, 0}, {0, 4, 0}, {0, 3, 1}}));
  ActivationPredictor predictor(history);
  predictor.begin_pass({of(1, 5, true)});
  // Nothing is known: both are equally near, their rows are summed and normalised.
  EXPECT_EQ(predictor.group_probabilities(LayerId(2)), (std::vector<double>{0.5, 0.375, 0.125}));
  predictor.observe(LayerId(0), ids({1}));
  EXPECT_EQ(predictor.group_probabilities(LayerId(1)), (std::vector<double>{0, 1, 0}));
  EXPECT_EQ(predictor.group_probabilities(LayerId(2)), (std::vector<double>{0, 0.75, 0.25}));
  predictor.observe(LayerId(1), ids({1}));
  predictor.observe(LayerId(2), ids({2}));
  // The second token: the request's own matrix of one token counts 1 beside 16 of the match.
  predictor.begin_pass({of(1, 6, true)});
  const std::vector<double> found = predictor.group_probabilities(LayerId(2));
  EXPECT_NEAR(found[1], 0.75 * 16 / 17, 1e-12);
  EXPECT_NEAR(found[2], (0.25 * 16 + 1) / 17, 1e-12);
  predictor.observe(LayerId(0), ids({1}));
  EXPECT_EQ(predictor.next_pass_probabilities(LayerId(2)),
            predictor.group_probabilities(LayerId(2)));
  EXPECT_NEAR(predictor.next_pass_probabilities(LayerId(0))[1], 1.0, 1e-12)
      << "of a layer that is over as well";
}

TEST_F(ActivationPrediction, PromptsAndDecodingAreTracedApart) {
  const RoutingTraceShape shape = activation_shape(2, 4, 2);
  ActivationHistory history(shape, 8);
  ActivationPredictor predictor(history);
  predictor.begin_pass({of(3, 0, false), of(3, 1, false)});
  EXPECT_EQ(predictor.group_probabilities(LayerId(0)), (std::vector<double>{0, 0, 0, 0}));
  predictor.observe(LayerId(0), ids({0, 1, 0, 2}));
  predictor.observe(LayerId(1), ids({0, 1, 2, 3}));
  predictor.begin_pass({of(3, 2, true)});
  predictor.observe(LayerId(0), ids({3, 2}));
  predictor.observe(LayerId(1), ids({3, 2}));
  EXPECT_EQ(history.prompt.size() + history.decode.size(), 0) << "the request goes on";
  predictor.end_sequence(3);
  ASSERT_EQ(history.prompt.size(), 1);
  ASSERT_EQ(history.decode.size(), 1);
  EXPECT_EQ(history.prompt[0].layer(0)[0], 2.0f);
  EXPECT_EQ(history.decode[0].layer(0)[0], 0.0f);
  EXPECT_EQ(history.decode[0].layer(1)[3], 1.0f);
  predictor.end_sequence(3);
  EXPECT_EQ(history.prompt.size(), 1) << "it is over already";
}

TEST_F(ActivationPrediction, APassGivenUpIsNotCounted) {
  const RoutingTraceShape shape = activation_shape(2, 4, 1);
  ActivationHistory history(shape, 8);
  ActivationPredictor predictor(history);
  predictor.begin_pass({of(1, 0, true)});
  predictor.observe(LayerId(0), ids({3}));
  predictor.begin_pass({of(1, 0, true)});
  predictor.observe(LayerId(0), ids({2}));
  predictor.observe(LayerId(1), ids({2}));
  predictor.end_sequence(1);
  ASSERT_EQ(history.decode.size(), 1);
  EXPECT_EQ(history.decode[0].layer(0)[3], 0.0f);
  EXPECT_EQ(history.decode[0].layer(0)[2], 1.0f);
}

// Nobody says that these sequences end: the oldest join the history, one that runs does not.
TEST_F(ActivationPrediction, SequencesThatNobodyEndsAreBounded) {
  const RoutingTraceShape shape = activation_shape(1, 2, 1);
  ActivationHistory history(shape, 8);
  ActivationPredictor predictor(history);
  const auto pass = [&](int64_t sequence) {
    predictor.begin_pass({of(1, 0, true), of(sequence, 0, true)});
    predictor.observe(LayerId(0), ids({1, 0}));
  };
  for (int64_t sequence = 2; sequence <= 4096; ++sequence) pass(sequence);
  EXPECT_EQ(history.decode.size(), 0);
  for (int64_t sequence = 4097; sequence <= 4100; ++sequence) pass(sequence);
  EXPECT_EQ(history.decode.size(), 4) << "sequences 2 to 5";
  predictor.end_sequence(1);
  EXPECT_EQ(history.decode.size(), 5);
  EXPECT_EQ(history.decode[4].layer(0)[1], 4099.0f);
}

// The sums kept from gate to gate equal the paper's distance computed from scratch.
TEST_F(ActivationPrediction, MatchingEqualsComparingWholeMatrices) {
  std::mt19937 random(4);
  const RoutingTraceShape shape = activation_shape(4, 6, 2);
  ActivationHistory history(shape, 5);
  ActivationPredictor predictor(history);
  const auto choose = [&] {
    const auto first = static_cast<int64_t>(random() % 6);
    return ids({first, (first + 1 + static_cast<int64_t>(random() % 5)) % 6});
  };
  for (int64_t sequence = 0; sequence < 12; ++sequence) {
    ActivationMatrix seen(shape);
    for (int64_t position = 0; position < 6; ++position) {
      predictor.begin_pass({of(sequence, position, true)});
      for (int64_t l = 0; l < 4; ++l) {
        const std::vector<ExpertId> chosen = choose();
        predictor.observe(LayerId(l), chosen);
        seen.count(static_cast<size_t>(l), chosen);
        if (l == 3 || history.decode.size() == 0) continue;
        const size_t layers = position > 0 ? 4 : static_cast<size_t>(l) + 1;
        double least = 2.0;
        ActivationMatrix sum(shape);
        for (int64_t i = 0; i < history.decode.size(); ++i) {
          const double distance = distance_of(seen, history.decode[i], layers);
          if (distance < least - 1e-6) sum.clear();
          if (distance < least + 1e-6) sum.add(history.decode[i]);
          least = std::min(least, distance);
        }
        // Before a pass is complete the prediction is the matched row alone.
        if (position > 0) continue;
        double all = 0.0;
        for (const float count : sum.layer(3)) all += count;
        const std::vector<double> found = predictor.group_probabilities(LayerId(3));
        for (size_t e = 0; e < 6; ++e) {
          ASSERT_NEAR(found[e], std::min(1.0, 2.0 * sum.layer(3)[e] / all), 1e-9);
        }
      }
    }
    predictor.end_sequence(sequence);
  }
}

// Requests of several kinds, each with four experts of its own in every layer, of which a token
// takes two.
class Workload {
 public:
  // The share of the choices of the requests' first tokens that were among the four likeliest
  // experts, as the gates of the layer before left them.
  double found(ActivationPredictor& predictor, int64_t first_kind, int requests) {
    int64_t found = 0;
    int64_t asked = 0;
    for (int i = 0; i < requests; ++i) {
      const int64_t kind = first_kind + i % 6;
      ++sequence_;
      for (int64_t position = 0; position < 4; ++position) {
        predictor.begin_pass({{.sequence = sequence_, .position = position, .decodes = true}});
        for (int64_t layer = 0; layer < 6; ++layer) {
          const std::vector<ExpertId> chosen = choose(kind, layer);
          if (position == 0 && layer >= 2) {
            asked += 2;
            for (const ExpectedExpert& one : predictor.predict(LayerId(layer), 4)) {
              found += std::count(chosen.begin(), chosen.end(), one.expert);
            }
          }
          predictor.observe(LayerId(layer), chosen);
        }
      }
      predictor.end_sequence(sequence_);
    }
    return static_cast<double>(found) / static_cast<double>(asked);
  }

 private:
  std::vector<ExpertId> choose(int64_t kind, int64_t layer) {
    const auto i = static_cast<int64_t>(random_() % 4);
    const auto expert = [&](int64_t n) {
      return ExpertId((kind * 7 + layer * (3 + kind) + n % 4 * 5) % 16);
    };
    return {expert(i), expert(i + 1)};
  }

  std::mt19937 random_{12};
  int64_t sequence_ = 0;
};

// The paper's table 7: after a change of the workload low latency is back within 50 requests. Here
// predictions are by then nearly as good as those of a predictor that never saw another workload;
// the old matrices stay, since they differ from the new ones, and match some of the first layers.
TEST_F(ActivationPrediction, RecoversAfterAChangeOfWorkload) {
  const RoutingTraceShape shape = activation_shape(6, 16, 2);
  ActivationHistory history(shape, 12);
  ActivationPredictor predictor(history);
  Workload workload;
  workload.found(predictor, 0, 50);
  const double settled = workload.found(predictor, 0, 60);
  EXPECT_GT(settled, 0.8);
  EXPECT_LT(workload.found(predictor, 6, 6), settled - 0.2) << "these kinds were never seen";
  workload.found(predictor, 6, 44);
  const double recovered = workload.found(predictor, 6, 60);

  ActivationHistory only_new(shape, 12);
  ActivationPredictor fresh(only_new);
  workload.found(fresh, 6, 50);
  EXPECT_GT(recovered, workload.found(fresh, 6, 60) - 0.1);
  EXPECT_GT(recovered, 0.8);
}

class ActivationFile : public ::testing::Test {
 protected:
  RoutingTraceShape shape_ = activation_shape(2, 3, 1);
  std::filesystem::path path_ = std::filesystem::path(testing::TempDir()) /
                                (std::to_string(::getpid()) + "_activations.json");

  void TearDown() override { std::filesystem::remove(path_); }
  std::string refusal_of(const std::string& text) {
    try {
      ActivationHistory::parse(text, "file", shape_, 8);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }
};

TEST_F(ActivationFile, ComesBackTheSame) {
  ActivationHistory history(shape_, 8);
  history.prompt.add(matrix_with(shape_, {{1, 2, 3}, {4, 5, 6}}));
  history.decode.add(matrix_with(shape_, {{7, 0, 0}, {0, 8, 0}}));
  history.decode.add(matrix_with(shape_, {{0, 0, 9}, {0, 1, 0}}));
  history.save(path_);
  const ActivationHistory back = ActivationHistory::load(path_, shape_, 8);
  EXPECT_EQ(back.text(), history.text());
  EXPECT_EQ(back.decode.size(), 2);
  EXPECT_EQ(ActivationHistory::load(path_, shape_, 1).decode.size(), 1);
}

TEST_F(ActivationFile, OtherModelsAndDamageAreRefused) {
  ActivationHistory history(shape_, 8);
  history.decode.add(matrix_with(shape_, {{7, 0, 0}, {0, 8, 0}}));
  const std::string good = history.text();
  EXPECT_EQ(refusal_of(good), "");
  const auto damaged = [&](const std::string& what, const std::string& by) {
    std::string text = good;
    const size_t at = text.find(what);
    EXPECT_NE(at, std::string::npos) << what;
    text.replace(at, what.size(), by);
    return refusal_of(text);
  };
  for (const auto& [what, by] :
       std::vector<std::pair<std::string, std::string>>{{"\"version\":1", "\"version\":2"},
                                                        {"\"experts\":3", "\"experts\":4"},
                                                        {"\"top_k\":1", "\"top_k\":2"},
                                                        {"\"layer\":1", "\"layer\":2"},
                                                        {"[7,0,0]", "[7,0]"},
                                                        {"[7,0,0]", "[7,0,0,0]"},
                                                        {"[7,0,0]", "[-7,0,0]"},
                                                        {"[7,0,0]", "[7.5,0,0]"},
                                                        {"[7,0,0]", "[99999999,0,0]"},
                                                        {"[7,0,0]", "7"},
                                                        {"\"decode\"", "\"decoded\""},
                                                        {"\"prompt\":[]", "\"prompt\":{}"}}) {
    EXPECT_NE(damaged(what, by), "") << what << " " << by;
  }
  for (size_t size = 0; size + 2 < good.size(); size += 5) {
    EXPECT_NE(refusal_of(good.substr(0, size)), "") << size;
  }
}

}  // namespace
}  // namespace klotski
