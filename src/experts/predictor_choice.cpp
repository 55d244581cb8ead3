#include "experts/predictor_choice.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "experts/activation_predictor.h"
#include "experts/correlation_predictor.h"
#include "experts/path_predictor.h"
#include "experts/token_predictor.h"

namespace klotski {

std::span<const std::string_view> predictor_names() {
  static constexpr std::string_view kNames[] = {"correlation", "token", "activation-aware", "path"};
  return kNames;
}

std::unique_ptr<ExpertPredictor> make_predictor(const PredictorChoice& choice,
                                                CorrelationTable& table) {
  const auto missing = [&](std::string_view state) {
    fail(ErrorKind::usage, "predictor {}: expected {} with it", in_quotes(choice.name), state);
  };
  if (choice.name == "correlation") return std::make_unique<CorrelationPredictor>(table);
  if (choice.name == "token") return std::make_unique<TokenPredictor>(table.shape());
  if (choice.name == "activation-aware") {
    if (!choice.history) missing("the matrices of past requests, or an empty collection");
    return std::make_unique<ActivationPredictor>(*choice.history);
  }
  if (choice.name == "path") {
    if (!choice.network) missing("a trained network");
    return std::make_unique<PathPredictor>(*choice.network);
  }
  fail(ErrorKind::usage, "predictor: expected one of {}, found {}",
       fmt::join(predictor_names(), ", "), in_quotes(choice.name));
}

}  // namespace klotski
