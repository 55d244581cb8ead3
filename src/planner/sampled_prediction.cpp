#include "planner/sampled_prediction.h"

#include <algorithm>
#include <array>
#include <limits>

#include "base/cpu_limit.h"
#include "base/thread_pool.h"

namespace klotski {

namespace {

struct CareOf {
  int64_t units;  // experts of all layers taken, about
  int64_t least_layers;
  int64_t most_layers;
  PredictionDetail detail;
};

constexpr std::array<CareOf, 3> kCares{{
    {.units = 256,
     .least_layers = 2,
     .most_layers = 6,
     .detail = {.most_groups = 1, .averaged_layers = 8, .settling = 0.0, .row_steps = 6.0}},
    {.units = 256,
     .least_layers = 2,
     .most_layers = 6,
     .detail = {.most_groups = 1, .averaged_layers = 16, .settling = 0.0, .row_steps = 12.0}},
    {.units = 1024,
     .least_layers = 8,
     .most_layers = std::numeric_limits<int64_t>::max(),
     .detail = {}},
}};

int64_t layers_for(const CareOf& care, int64_t experts) {
  return std::clamp(care.units / experts, care.least_layers, care.most_layers);
}

}  // namespace

SampledPrediction::SampledPrediction(const PredictionInputs& whole, const PlannedWork& work,
                                     int64_t experts, Care care)
    : detail_(kCares[static_cast<size_t>(care)].detail),
      sample_(whole, layers_for(kCares[static_cast<size_t>(care)], experts)),
      with_(sample_.prediction_inputs()),
      work_(work) {}

Prediction SampledPrediction::of(const Policy& policy, int64_t at_once) const {
  PlannedWork work = work_;
  work.at_once = at_once;
  Prediction found = predict(with_, sample_.policy(policy), work, detail_);
  if (const double times = sample_.times_as_long(); times > 1.0) found.slow_down(times);
  return found;
}

void SampledPrediction::of_all(std::span<Candidate> candidates) const {
  const auto count = static_cast<int64_t>(candidates.size());
  if (count == 0) return;
  ThreadPool pool(static_cast<int>(std::min<int64_t>(usable_cpus(), count)));
  pool.parallel_for(count, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      Candidate& one = candidates[static_cast<size_t>(i)];
      one.prediction = of(one.group.policy, one.group.at_once);
    }
  });
}

}  // namespace klotski
