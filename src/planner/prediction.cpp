#include "planner/prediction.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>
#include <utility>

namespace klotski {

namespace {

// Rounds to the nearest of `steps` values between a number and its double.
double rounded(double value, double steps) {
  if (value < steps) return std::round(value * 4.0) / 4.0;
  return std::exp2(std::round(std::log2(value) * steps) / steps);
}
// Share of the experts of a layer that a pass of so many rows uses, where all are as popular and
// where layers choose experts.
double used_share(const ModelDescription& model, double rows) {
  double least = 1.0;
  for (const Layer& layer : model.layers) {
    const FeedForward& part = layer.feed_forward;
    if (!part.routed) continue;
    const double by_row =
        static_cast<double>(part.router.top_k) / static_cast<double>(part.experts);
    least = std::min(least, 1.0 - std::pow(1.0 - by_row, std::max(rows, 1.0)));
  }
  return least;
}

constexpr double kPositionSteps = 4.0;  // attention grows along a line: rounding evens out

// The pass as it is simulated. Rows of a kind that has few beside the others are told apart by
// their share of all rows: a pass of 512 rows of prompts takes about as long with one decoding row
// as with five.
PassShape rounded(PassShape shape, double row_steps) {
  const double least_step = shape.rows() / (4.0 * row_steps);  // as for numbers below `steps`
  const auto beside_others = [&](double value) {
    const double few = std::round(value / least_step) * least_step;
    return few < least_step * row_steps ? few : rounded(value, row_steps);
  };
  shape.prompt_rows = beside_others(shape.prompt_rows);
  shape.decoding_rows = beside_others(shape.decoding_rows);
  shape.positions = shape.decoding_rows > 0 ? rounded(shape.positions, kPositionSteps) : 0.0;
  if (shape.logit_rows > 0) {
    shape.logit_rows = std::max(0.25, beside_others(shape.logit_rows));
  }
  return shape;
}

// The passes of a run, simulated in their order.
class Run {
 public:
  Run(const PredictionInputs& with, const Policy& policy, const PlannedWork& work,
      const PredictionDetail& detail)
      : detail_(detail),
        model_(with.model),
        simulator_(with, policy),
        passes_(policy, work),
        most_of_group_(work.generated_tokens - 2),
        weights_in_place_(work.weights_in_place) {}

  // The prediction of all passes; of `times_more` as much work again, without the weights that only
  // the first pass had to bring; and of `last` sequences after that.
  Prediction all(double times_more, int64_t last) {
    go_through();
    if (times_more > 0) repeat(times_more);
    passes_.add(last);
    go_through();
    return result_;
  }

 private:
  // Passes of a shape that are simulated, and the first of them that do not count for later ones.
  struct Passes {
    int64_t simulated = 1;
    int64_t left_out = 0;
  };

  void go_through() {
    while (const std::optional<PlannedPass> pass = passes_.next()) take(*pass);
  }

  void repeat(double times_more) {
    const TimelineTotals first_again = simulate(first_shape_);
    Prediction more = result_;
    more.prefill_seconds -= in_seconds(first_.elapsed) - in_seconds(first_again.elapsed);
    more.totals -= first_;
    more.totals += first_again;
    for (double Prediction::*part :
         {&Prediction::prefill_seconds, &Prediction::decode_seconds, &Prediction::prompt_tokens,
          &Prediction::generated_tokens, &Prediction::decoded_tokens}) {
      result_.*part += times_more * (more.*part);
    }
    more.totals *= times_more;
    result_.totals += more.totals;
    result_.passes += static_cast<int64_t>(static_cast<double>(more.passes) * times_more);
  }

  void take(const PlannedPass& pass) {
    const PassShape shape = rounded(pass.shape, detail_.row_steps);
    if (weights_in_place_ && result_.passes == 0) simulator_.play(shape);
    const TimelineTotals totals = simulate(shape);
    const double seconds = in_seconds(totals.elapsed);
    result_.totals += totals;
    result_.prompt_tokens += static_cast<double>(pass.prompt_rows);
    result_.generated_tokens += static_cast<double>(pass.gained);
    if (pass.prompt_rows > 0) {
      result_.prefill_seconds += seconds;
    } else {
      result_.decode_seconds += seconds;
      result_.decoded_tokens += static_cast<double>(pass.gained);
    }
    ++result_.passes;
  }

  // Passes of a shape, one after the other, that are simulated. Experts of other rows leave memory
  // while these rows use theirs: after as many passes as use a layer's experts twice, few are left.
  // Passes since the last one of other rows have done a part of that, and a group that ends earlier
  // never comes that far.
  Passes passes_of(const PassShape& shape) const {
    const double rows = shape.rows() * static_cast<double>(shape.micro_batches);
    const int64_t settled = std::llround(2.0 * detail_.settling / used_share(model_, rows));
    const int64_t most = std::min(settled - same_rows_, most_of_group_);
    const int64_t least = std::max<int64_t>(1, detail_.averaged_layers / model_.layer_count());
    if (most <= least) return {.simulated = least, .left_out = least / 2};
    return {.simulated = most, .left_out = most < most_of_group_ ? most / 2 : 0};
  }

  // The first pass of a shape after a pass of other rows finds that pass's weights in memory, later
  // passes find the shape's own. Several of these are simulated, since each finds other experts,
  // and the mean of the second half of them stands for later ones: the first half still brings
  // experts that other rows did not use, or whose slots were lent.
  TimelineTotals simulate(const PassShape& shape) {
    const RowCounts rows{shape.micro_batches, shape.prompt_rows, shape.decoding_rows,
                         shape.logit_rows};
    const RowCounts before = std::exchange(last_rows_, rows);
    same_rows_ = before == rows ? same_rows_ + 1 : 0;
    Simulated& known = known_[{before, rows, shape.positions}];
    if (known.passes == 0 && before == rows) known.of = passes_of(shape);
    if (known.passes == known.of.simulated) return known.totals;
    const TimelineTotals pass = simulator_.play(shape);
    if (result_.passes == 0) {
      first_shape_ = shape;
      first_ = pass;
    }
    if (known.passes >= known.of.left_out) known.totals += pass;
    if (++known.passes == known.of.simulated) {
      known.totals *= 1.0 / static_cast<double>(known.of.simulated - known.of.left_out);
    }
    return pass;
  }

  struct Simulated {
    Passes of{};
    int64_t passes = 0;
    TimelineTotals totals;  // of the passes that count; once all are there, their mean
  };

  const PredictionDetail& detail_;
  const ModelDescription& model_;
  PassSimulator simulator_;
  PlannedPasses passes_;
  int64_t most_of_group_;  // passes of one group that find its own rows in memory
  int64_t same_rows_ = 0;  // passes since the last one of other rows
  bool weights_in_place_;
  using RowCounts = std::tuple<int64_t, double, double, double>;
  RowCounts last_rows_;
  PassShape first_shape_;
  TimelineTotals first_;  // the first pass
  // Simulated passes by the rows of the pass before, a pass's own, and the positions they see.
  std::map<std::tuple<RowCounts, RowCounts, double>, Simulated> known_;
  Prediction result_;
};

}  // namespace

Prediction predict(const PredictionInputs& with, const Policy& policy, const PlannedWork& work,
                   const PredictionDetail& detail) {
  const int64_t group = std::min(work.at_once, policy.group.sequences());
  PlannedWork simulated = work;
  simulated.encodes = with.model.encoder.has_value();
  simulated.sequences = std::min(work.sequences, detail.most_groups * group);
  const int64_t left = work.sequences - simulated.sequences;
  const int64_t last = left % group;
  return Run(with, policy, simulated, detail)
      .all(static_cast<double>(left - last) / static_cast<double>(simulated.sequences), last);
}

}  // namespace klotski
