#include "experts/prediction_trial.h"

#include <cmath>
#include <utility>

namespace klotski {

namespace {

constexpr double kHalfLifePasses = 32;  // passes after which a pass counts half
constexpr int64_t kFirstPasses = 16;    // judged before the first verdict
// Gains between which a verdict stays as it was, shares of the time.
constexpr double kBegins = 0.02;
constexpr double kEnds = 0.0;

}  // namespace

PredictionTrial::PredictionTrial(int64_t slots,
                                 const std::function<std::unique_ptr<EvictionRule>()>& make_rule,
                                 int64_t layer_count)
    : with_(slots, make_rule()), without_(slots, make_rule()), layer_count_(layer_count) {}

void PredictionTrial::chosen(LayerId layer, std::span<const int64_t> expert_rows,
                             const RunPace& pace) {
  for (ShadowRun* run : {&with_, &without_}) run->run_layer(layer, expert_rows, pace);
}

void PredictionTrial::expected(LayerId observed, const std::vector<LayerProbabilities>& coming,
                               std::span<const double> in_next_pass, const RunPace& pace) {
  for (const LayerProbabilities& layer : coming) {
    if (layer.layer > observed) with_.cache().expect(layer.layer, layer.probability);
  }
  with_.cache().expect_in_next_pass(observed, in_next_pass);
  const LayerId next((observed.value + 1) % layer_count_);
  with_.make_guesses(by_priority(coming, next, layer_count_), pace);
}

void PredictionTrial::pass_over(bool judged) {
  const double with = with_.seconds() - std::exchange(with_before_, with_.seconds());
  const double without = without_.seconds() - std::exchange(without_before_, without_.seconds());
  if (!judged) return;
  const double fades = std::exp2(-1.0 / kHalfLifePasses);
  saved_ = saved_ * fades + (without - with);
  spent_ = spent_ * fades + without;
  result_.gain = spent_ > 0 ? saved_ / spent_ : 0.0;
  result_.followed += follows_ ? 1 : 0;
  if (++result_.passes < kFirstPasses) return;
  follows_ = result_.gain > (follows_ ? kEnds : kBegins);
}

}  // namespace klotski
