#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "experts/activation_collection.h"
#include "experts/correlation_table.h"
#include "experts/path_network.h"
#include "experts/predictor.h"

namespace klotski {

// Which predictor is asked, and the state that was kept for it.
struct PredictorChoice {
  std::string name = "correlation";
  std::shared_ptr<ActivationHistory> history{};  // needed by "activation-aware", which adds to it
  std::shared_ptr<PathNetwork> network{};        // needed by "path"
};

// The names that make_predictor() knows.
std::span<const std::string_view> predictor_names();

// "correlation": by the experts of the layer before (correlation_predictor.h), which teaches the
// table. "token": by the token (token_predictor.h). "activation-aware": by similar past requests
// (activation_predictor.h). "path": by a trained network (path_predictor.h). Throws (usage) for
// other names and where the state is missing. The table and the state must live longer.
std::unique_ptr<ExpertPredictor> make_predictor(const PredictorChoice& choice,
                                                CorrelationTable& table);

}  // namespace klotski
