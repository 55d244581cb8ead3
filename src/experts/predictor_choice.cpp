#include "experts/predictor_choice.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "experts/activation_predictor.h"
#include "experts/correlation_predictor.h"
#include "experts/joined_predictor.h"
#include "experts/oracle_predictor.h"
#include "experts/path_predictor.h"
#include "experts/token_predictor.h"

namespace klotski {

namespace {

// Expects nothing, whatever it is told.
class NoPredictor : public ExpertPredictor {
 public:
  using ExpertPredictor::ExpertPredictor;

 private:
  void learn(size_t) override {}
  std::vector<double> estimate(size_t routed_layer, int64_t) const override {
    return std::vector<double>(static_cast<size_t>(shape().layers[routed_layer].experts));
  }
};

}  // namespace

std::span<const std::string_view> predictor_names() {
  static constexpr std::string_view kNames[] = {"none", "correlation", "token", "activation-aware",
                                                "path", "oracle"};
  return kNames;
}

std::unique_ptr<ExpertPredictor> make_predictor(const PredictorChoice& choice,
                                                CorrelationTable& table) {
  const auto missing = [&](std::string_view state) {
    fail(ErrorKind::usage, "predictor {}: expected {} with it", in_quotes(choice.name), state);
  };
  if (choice.name == "none") return std::make_unique<NoPredictor>(table.shape());
  if (choice.name == "correlation") return std::make_unique<CorrelationPredictor>(table);
  // A predictor of this pass, which leaves the next one to the past requests where these are kept.
  const auto joined = [&](std::unique_ptr<ExpertPredictor> this_pass) {
    if (!choice.history) return this_pass;
    return std::unique_ptr<ExpertPredictor>(std::make_unique<JoinedPredictor>(
        std::move(this_pass), std::make_unique<ActivationPredictor>(*choice.history)));
  };
  if (choice.name == "token") return joined(std::make_unique<TokenPredictor>(table.shape()));
  if (choice.name == "activation-aware") {
    if (!choice.history) missing("the matrices of past requests, or an empty collection");
    return std::make_unique<ActivationPredictor>(*choice.history);
  }
  if (choice.name == "path") {
    if (!choice.network) missing("a trained network");
    return joined(std::make_unique<PathPredictor>(*choice.network));
  }
  if (choice.name == "oracle") {
    if (!choice.recorded) missing("recorded routing, which klotski bench --routing follows");
    return std::make_unique<OraclePredictor>(table.shape(), choice.recorded);
  }
  fail(ErrorKind::usage, "predictor: expected one of {}, found {}",
       fmt::join(predictor_names(), ", "), in_quotes(choice.name));
}

}  // namespace klotski
