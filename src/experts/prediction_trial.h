#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "experts/shadow_run.h"

namespace klotski {

// The verdict on a predictor so far.
struct TrialResult {
  int64_t passes = 0;    // passes judged
  int64_t followed = 0;  // passes of these in which the run followed the predictor
  double gain = 0.0;     // share of the time that following it saves by the latest judgement
};

// Judges a predictor while a run goes on: two shadow runs meet the choices of the real one, with
// the run's own rule and number of slots and at its measured pace. One keeps and brings experts as
// the predictor says, the other does without. The run follows the predictor while the first is
// faster; it begins without.
class PredictionTrial {
 public:
  PredictionTrial(int64_t slots, const std::function<std::unique_ptr<EvictionRule>()>& make_rule,
                  int64_t layer_count);

  // The rows of the group that chose each expert of the layer, [expert].
  void chosen(LayerId layer, std::span<const int64_t> expert_rows, const RunPace& pace);
  // The predictions after those choices: of coming layers, in this pass and then in the next, and
  // of the layer itself in the next pass (may be empty).
  void expected(LayerId observed, const std::vector<LayerProbabilities>& coming,
                std::span<const double> in_next_pass, const RunPace& pace);
  // A pass is over; `judged`: something was expected in it.
  void pass_over(bool judged);

  bool follows() const { return follows_; }
  const TrialResult& result() const { return result_; }

 private:
  ShadowRun with_;
  ShadowRun without_;
  int64_t layer_count_;
  bool follows_ = false;
  // Seconds of both up to the pass before, and sums in which passes fade.
  double with_before_ = 0.0;
  double without_before_ = 0.0;
  double saved_ = 0.0;
  double spent_ = 0.0;
  TrialResult result_;
};

}  // namespace klotski
