#include "experts/predictor_choice.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/testing.h"

namespace klotski {
namespace {

const RoutingTraceShape kTwoLayers{"tiny", {{LayerId(0), 4, 2}, {LayerId(1), 6, 1}}};

PredictorChoice with_all_state(std::string_view name) {
  return {
      .name = std::string(name),
      .history = std::make_shared<ActivationHistory>(kTwoLayers, 4),
      .network = std::make_shared<PathNetwork>(PathNetworkShape{.routing = kTwoLayers}),
      .recorded = std::make_shared<RecordedRouting>(TracedSequences{
          .shape = kTwoLayers, .sequences = {{.tokens = {3, 4}, .choices = {2, 1, 5, 0, 3, 4}}}})};
}

TEST(PredictorChoiceTest, EveryNamedPredictorPredictsBothLayers) {
  CorrelationTable table(kTwoLayers);
  for (const std::string_view name : predictor_names()) {
    SCOPED_TRACE(std::string(name));
    const PredictorChoice choice = with_all_state(name);
    const auto predictor = make_predictor(choice, table);
    predictor->begin_pass({{.sequence = 1, .position = 0, .token = 3}});
    EXPECT_EQ(predictor->coming(2).size(), 2u);
    predictor->observe(LayerId(0), std::vector{ExpertId(2), ExpertId(1)});
    EXPECT_EQ(predictor->group_probabilities(LayerId(0)), (std::vector<double>{0, 1, 1, 0}));
    ASSERT_EQ(predictor->coming(2).size(), 1u);
    EXPECT_EQ(predictor->coming(2)[0].probability.size(), 6u);
  }
}

TEST(PredictorChoiceTest, NoneExpectsNothing) {
  CorrelationTable table(kTwoLayers);
  const auto none = make_predictor(with_all_state("none"), table);
  none->begin_pass({{.sequence = 1, .position = 0, .token = 3}});
  EXPECT_EQ(none->group_probabilities(LayerId(1)), std::vector<double>(6));
  EXPECT_TRUE(none->predict(LayerId(1), 6).empty());
}

// The sequence's first token goes to experts 2 and 1, then 5; its second to 0 and 3, then 4.
TEST(PredictorChoiceTest, TheOracleKnowsThisPassAndTheNext) {
  CorrelationTable table(kTwoLayers);
  const auto oracle = make_predictor(with_all_state("oracle"), table);
  oracle->begin_pass({{.sequence = 1, .position = 0, .token = 3}});
  EXPECT_EQ(oracle->group_probabilities(LayerId(1)), (std::vector<double>{0, 0, 0, 0, 0, 1}));
  EXPECT_EQ(oracle->next_pass_probabilities(LayerId(0)), (std::vector<double>{1, 0, 0, 1}));
  oracle->begin_pass({{.sequence = 1, .position = 1, .token = 4}});
  EXPECT_EQ(oracle->next_pass_probabilities(LayerId(0)), std::vector<double>(4)) << "none is left";
}

// Token predictors say nothing of the next pass, past requests do: joined both are known.
TEST(PredictorChoiceTest, AHistoryForetellsTheNextPassBesideTokens) {
  CorrelationTable table(kTwoLayers);
  const PredictorChoice with_history = with_all_state("token");
  PredictorChoice without_history = with_history;
  without_history.history = nullptr;
  const auto joined = make_predictor(with_history, table);
  const auto alone = make_predictor(without_history, table);
  for (ExpertPredictor* predictor : {joined.get(), alone.get()}) {
    for (int64_t position = 0; position < 3; ++position) {
      predictor->begin_pass(
          {{.sequence = 1, .position = position, .token = 3, .decodes = position > 0}});
      predictor->observe(LayerId(0), std::vector{ExpertId(2), ExpertId(1)});
      predictor->observe(LayerId(1), std::vector{ExpertId(5)});
    }
  }
  EXPECT_TRUE(alone->next_pass_probabilities(LayerId(1)).empty());
  const std::vector<double> next = joined->next_pass_probabilities(LayerId(1));
  ASSERT_EQ(next.size(), 6u);
  EXPECT_GT(next[5], next[0]);
  for (ExpertPredictor* predictor : {joined.get(), alone.get()}) {
    predictor->begin_pass({{.sequence = 1, .position = 3, .token = 3, .decodes = true}});
  }
  EXPECT_EQ(joined->group_probabilities(LayerId(1)), alone->group_probabilities(LayerId(1)));
}

TEST(PredictorChoiceTest, RefusesOtherNamesAndMissingState) {
  CorrelationTable table(kTwoLayers);
  const auto refused = [&](const PredictorChoice& choice) {
    return refusal([&] { make_predictor(choice, table); });
  };
  EXPECT_NE(refused({.name = "clairvoyant"}).find("expected one of none, correlation"),
            std::string::npos);
  EXPECT_NE(refused({.name = "oracle"}).find("recorded routing"), std::string::npos);
  EXPECT_NE(refused({.name = "path"}).find("a trained network"), std::string::npos);
  EXPECT_NE(refused({.name = "activation-aware"}).find("past requests"), std::string::npos);
}

}  // namespace
}  // namespace klotski
