#pragma once

#include <cstdint>
#include <functional>

#include "experts/shadow_run.h"
#include "schedule/schedule_context.h"
#include "timeline/timeline.h"

namespace klotski {

// How fast experts come to the compute tier, and how long a layer computes, as the last pass of few
// rows has shown. Guesses (priority_prefetch.cpp) are made by the quotient: it says how many
// experts the link can bring before the next gates ask for theirs.
class LinkPace {
 public:
  LinkPace(const ModelDescription& model, const Policy& policy,
           const std::function<UnitFacts(const WeightUnit&)>& facts);

  // A pass of some rows is over; `totals` cover all passes so far.
  void pass_over(const TimelineTotals& totals, int64_t rows);

  const RunPace& pace() const { return pace_; }  // load_seconds is 0 until they are known

 private:
  Lane link_;
  double layers_;
  double expert_bytes_ = 0.0;  // bytes of the first expert that cross the link; 0: there is none
  TimelineTotals before_;
  RunPace pace_;
};

}  // namespace klotski
