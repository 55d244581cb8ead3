#include "experts/predictor_choice.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/testing.h"

namespace klotski {
namespace {

const RoutingTraceShape kShape{"tiny", {{LayerId(0), 4, 2}, {LayerId(1), 6, 1}}};

PredictorChoice with_all_state(std::string_view name) {
  return {.name = std::string(name),
          .history = std::make_shared<ActivationHistory>(kShape, 4),
          .network = std::make_shared<PathNetwork>(PathNetworkShape{.routing = kShape})};
}

TEST(PredictorChoiceTest, EveryNamedPredictorPredictsBothLayers) {
  CorrelationTable table(kShape);
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

TEST(PredictorChoiceTest, RefusesOtherNamesAndMissingState) {
  CorrelationTable table(kShape);
  const auto refused = [&](const PredictorChoice& choice) {
    return refusal([&] { make_predictor(choice, table); });
  };
  EXPECT_NE(refused({.name = "oracle"}).find("expected one of correlation, token"),
            std::string::npos);
  EXPECT_NE(refused({.name = "path"}).find("a trained network"), std::string::npos);
  EXPECT_NE(refused({.name = "activation-aware"}).find("past requests"), std::string::npos);
}

}  // namespace
}  // namespace klotski
