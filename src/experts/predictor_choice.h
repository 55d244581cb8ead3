#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "experts/activation_collection.h"
#include "experts/correlation_table.h"
#include "experts/path_network.h"
#include "experts/predictor.h"
#include "experts/recorded_routing.h"

namespace klotski {

// Which predictor is asked, and the state that was kept for it.
struct PredictorChoice {
  std::string name = "correlation";
  // Needed by "activation-aware", used by "token" and "path"; grows with requests that end.
  std::shared_ptr<ActivationHistory> history{};
  std::shared_ptr<PathNetwork> network{};             // needed by "path"
  std::shared_ptr<const RecordedRouting> recorded{};  // needed by "oracle"
};

// The names that make_predictor() knows.
std::span<const std::string_view> predictor_names();

// "none": expects nothing. "correlation": by the experts of the layer before
// (correlation_predictor.h), which teaches the table. "token": by the token (token_predictor.h).
// "activation-aware": by similar past requests (activation_predictor.h). "path": by a trained
// network (path_predictor.h). "oracle": knows the choices (oracle_predictor.h). "token" and "path"
// know no more than the tokens of a pass; with a history it foretells the next pass beside them
// (joined_predictor.h). Throws (usage) for other names and where the state is missing. The table
// and the state must live longer.
std::unique_ptr<ExpertPredictor> make_predictor(const PredictorChoice& choice,
                                                CorrelationTable& table);

}  // namespace klotski
