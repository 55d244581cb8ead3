#include "experts/prediction_trial.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace klotski {
namespace {

constexpr int64_t kLayers = 4;
constexpr int64_t kExperts = 8;

std::unique_ptr<EvictionRule> rule() { return make_eviction_rule("activation-aware", kLayers); }

std::vector<int64_t> only(int64_t expert) {
  std::vector<int64_t> rows(kExperts);
  rows[static_cast<size_t>(expert)] = 1;
  return rows;
}

// Two experts that are missing take a load each, one after the other; both are there next time.
TEST(ShadowRun, MissingExpertsComeOneAfterTheOther) {
  ShadowRun run(4, rule());
  std::vector<int64_t> rows(kExperts);
  rows[1] = rows[5] = 1;
  const RunPace pace{.load_seconds = 3, .layer_seconds = 2};
  run.run_layer(LayerId(0), rows, pace);
  EXPECT_DOUBLE_EQ(run.stalled(), 6);
  EXPECT_DOUBLE_EQ(run.seconds(), 8);
  run.run_layer(LayerId(0), rows, pace);
  EXPECT_DOUBLE_EQ(run.stalled(), 6);
  EXPECT_DOUBLE_EQ(run.seconds(), 10);
}

// A guess that is right is on its way while the layer computes: two of its three seconds are saved.
// One that is wrong delays by its third second what the gates ask for.
TEST(ShadowRun, GuessesTakeTheLinkWhileALayerComputes) {
  const RunPace pace{.load_seconds = 3, .layer_seconds = 2};
  for (const bool right : {true, false}) {
    ShadowRun run(4, rule());
    run.run_layer(LayerId(0), only(0), pace);
    run.make_guesses({{{.expert = {LayerId(1), ExpertId(2)}, .priority = 0.9}}}, pace);
    run.run_layer(LayerId(1), only(right ? 2 : 3), pace);
    EXPECT_DOUBLE_EQ(run.stalled(), right ? 3 + 1 : 3 + 1 + 3) << right;
  }
}

TEST(ShadowRun, GuessesThatAreNotWorthItAreNotMade) {
  const RunPace pace{.load_seconds = 3, .layer_seconds = 2};
  ShadowRun run(4, rule());
  run.run_layer(LayerId(0), only(0), pace);
  run.make_guesses({{{.expert = {LayerId(1), ExpertId(2)}, .priority = 0.3}}}, pace);
  EXPECT_FALSE(run.cache().resident({LayerId(1), ExpertId(2)}));
}

// Plays passes in which every layer chooses one expert at random and half of the experts fit.
class Trial {
 public:
  // `knows`: the predictor is right; else it is sure of an expert that nobody chooses.
  void play(int passes, bool knows) {
    for (int pass = 0; pass < passes; ++pass) {
      std::vector<int64_t> chosen;
      for (int64_t l = 0; l < kLayers; ++l) {
        chosen.push_back(static_cast<int64_t>(random_() % (kExperts - 1)));
      }
      for (int64_t l = 0; l < kLayers; ++l) {
        trial.chosen(LayerId(l), only(chosen[static_cast<size_t>(l)]), kPace);
        std::vector<LayerProbabilities> coming;
        for (int64_t next = l + 1; next < kLayers; ++next) {
          std::vector<double> probability(kExperts);
          const int64_t expert = knows ? chosen[static_cast<size_t>(next)] : kExperts - 1;
          probability[static_cast<size_t>(expert)] = 1.0;
          coming.push_back({LayerId(next), probability});
        }
        trial.expected(LayerId(l), coming, {}, kPace);
      }
      trial.pass_over(true);
    }
  }

  static constexpr RunPace kPace{.load_seconds = 1, .layer_seconds = 1};
  PredictionTrial trial{16, rule, kLayers};

 private:
  std::mt19937 random_{5};
};

TEST(PredictionTrial, BeginsWithoutThePredictor) {
  Trial run;
  run.play(10, true);
  EXPECT_FALSE(run.trial.follows());
  EXPECT_EQ(run.trial.result().followed, 0);
}

TEST(PredictionTrial, FollowsAPredictorThatKnows) {
  Trial run;
  run.play(40, true);
  EXPECT_TRUE(run.trial.follows());
  EXPECT_GT(run.trial.result().gain, 0.1);
  EXPECT_EQ(run.trial.result().passes, 40);
  EXPECT_GT(run.trial.result().followed, 20);
}

TEST(PredictionTrial, NeverFollowsOneThatIsSureAndWrong) {
  Trial run;
  run.play(200, false);
  EXPECT_EQ(run.trial.result().followed, 0);
  EXPECT_LT(run.trial.result().gain, 0);
}

// Prompts miss nearly all experts with and without a predictor: they say nothing about it.
TEST(PredictionTrial, PromptsAreNotJudged) {
  Trial run;
  for (int i = 0; i < 40; ++i) {
    run.play(1, true);
    for (int64_t l = 0; l < kLayers; ++l) {
      run.trial.chosen(LayerId(l), std::vector<int64_t>(kExperts, 9), {.load_seconds = 1000});
    }
    run.trial.pass_over(false);
  }
  EXPECT_EQ(run.trial.result().passes, 40);
  EXPECT_TRUE(run.trial.follows());
}

TEST(PredictionTrial, LeavesAPredictorThatIsRightNoLonger) {
  Trial run;
  run.play(100, true);
  ASSERT_TRUE(run.trial.follows());
  run.play(100, false);
  EXPECT_FALSE(run.trial.follows());
  run.play(200, true);
  EXPECT_TRUE(run.trial.follows()) << "and comes back to it";
}

}  // namespace
}  // namespace klotski
